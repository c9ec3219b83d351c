# config/, and of other floors by name what it stands on: whole floors would bring the loop and the call path along.
foreach(stem complaints ini_file substitute values shapes machine)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c LIBS tributary_base)
endforeach()
target_sources(test_complaints PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/complaints.c)
target_sources(test_ini_file PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/complaints.c
    ${CMAKE_SOURCE_DIR}/proxy/config/ini_file.c)
target_sources(test_substitute PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/substitute.c)
target_sources(test_values PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/values.c)
target_sources(test_machine PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/machine.c)
target_sources(test_shapes PRIVATE ${CMAKE_SOURCE_DIR}/proxy/config/shapes.c ${CMAKE_SOURCE_DIR}/proxy/net/address.c)

add_library(tributary_config_stand OBJECT ${CMAKE_SOURCE_DIR}/proxy/call/routes.c
    ${CMAKE_SOURCE_DIR}/proxy/call/snapshot.c ${CMAKE_SOURCE_DIR}/proxy/net/address.c
    ${CMAKE_SOURCE_DIR}/proxy/net/outbuf.c ${CMAKE_SOURCE_DIR}/proxy/net/tls.c)
target_link_libraries(tributary_config_stand PUBLIC tributary_flags)
foreach(stem keys config config_errors config_print config_reload config_filters config_tls key_docs routes snapshot)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c config_test.c
        LIBS tributary_config tributary_config_stand tributary_base)
endforeach()
target_compile_definitions(test_key_docs PRIVATE SOURCE_DIR="${CMAKE_SOURCE_DIR}")
