# Whole sessions: the real listener, call path and pools between two sockets of the target.
set(SESSION_FLOORS downstream upstream filters config call net stats)
foreach(floor ${SESSION_FLOORS})
    if(TRIBUTARY_FUZZ AND NOT floor STREQUAL config) # that one is done in config.cmake
        target_compile_options(tributary_${floor} PRIVATE ${FUZZ_FLAGS})
    endif()
endforeach()
list(TRANSFORM SESSION_FLOORS PREPEND tributary_ OUTPUT_VARIABLE SESSION_LIBS)
foreach(name server_session client_session)
    tributary_fuzz(${name} LIBS ${SESSION_LIBS} tributary_wire tributary_base)
    target_sources(fuzz_${name} PRIVATE fuzz_session.c)
endforeach()
