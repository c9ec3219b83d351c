# config/ and the two files of call/ that hold its result, by name: tributary_call needs all of the call path.
if(TRIBUTARY_FUZZ)
    foreach(floor stats net config)
        target_compile_options(tributary_${floor} PRIVATE ${FUZZ_FLAGS})
    endforeach()
endif()
tributary_fuzz(ini LIBS tributary_config tributary_net tributary_stats tributary_base)
target_sources(fuzz_ini PRIVATE ${CMAKE_SOURCE_DIR}/proxy/call/routes.c ${CMAKE_SOURCE_DIR}/proxy/call/snapshot.c)
