# config/, and of other floors by name what it stands on (as in tests/unit/config.cmake).
if(TRIBUTARY_FUZZ)
    target_compile_options(tributary_config PRIVATE ${FUZZ_FLAGS})
endif()
tributary_fuzz(ini LIBS tributary_config tributary_base)
foreach(source call/routes.c call/snapshot.c net/address.c net/outbuf.c net/tls.c)
    target_sources(fuzz_ini PRIVATE ${CMAKE_SOURCE_DIR}/proxy/${source})
endforeach()
