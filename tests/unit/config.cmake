# config/ and the two files of call/ that hold its result; those by name, since tributary_call needs all of the call path.
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

foreach(stem keys config config_errors config_print config_reload config_filters config_tls key_docs routes snapshot)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c config_test.c
        ${CMAKE_SOURCE_DIR}/proxy/call/routes.c ${CMAKE_SOURCE_DIR}/proxy/call/snapshot.c
        LIBS tributary_config tributary_net tributary_stats tributary_base)
endforeach()
target_compile_definitions(test_key_docs PRIVATE CONF_DIR="${CMAKE_SOURCE_DIR}/conf")
