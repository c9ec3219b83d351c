# proxy/call: pure parts by themselves; codecs with a fabricated call and everything they stand on.
tributary_unit_test(test_path SOURCES test_path.c ${CMAKE_SOURCE_DIR}/proxy/call/path.c LIBS tributary_base)
tributary_unit_test(test_flow SOURCES test_flow.c ${CMAKE_SOURCE_DIR}/proxy/call/flow.c LIBS tributary_wire tributary_base)

add_library(tributary_codecs OBJECT call_stand.c
    ${CMAKE_SOURCE_DIR}/downstream/grpc.c ${CMAKE_SOURCE_DIR}/downstream/triple.c
    ${CMAKE_SOURCE_DIR}/downstream/request_common.c ${CMAKE_SOURCE_DIR}/upstream/bare.c
    ${CMAKE_SOURCE_DIR}/upstream/framed.c ${CMAKE_SOURCE_DIR}/upstream/reply_framed.c
    ${CMAKE_SOURCE_DIR}/upstream/codec_common.c)
target_link_libraries(tributary_codecs PUBLIC tributary_flags PkgConfig::CMOCKA)
foreach(stem grpc triple bare framed)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c
        LIBS tributary_codecs tributary_call tributary_stats tributary_net tributary_wire tributary_base)
endforeach()
