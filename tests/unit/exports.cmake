# What the stats endpoint says, without a server: its few functions that exports*.c call are fakes in the test.
tributary_unit_test(test_exports SOURCES test_exports.c ${CMAKE_SOURCE_DIR}/proxy/exports_state.c
    ${CMAKE_SOURCE_DIR}/proxy/exports_json.c ${CMAKE_SOURCE_DIR}/proxy/exports_metrics.c
    LIBS tributary_stats tributary_wire tributary_base)
