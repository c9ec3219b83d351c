# HTTP/2 connections: proxy/net/h2*.
foreach(test test_h2 test_h2_flow test_h2_life test_h2_faults test_h2_closed test_h2_limits test_h2_message test_h2_random)
    tributary_loop_test(${test} ${test}.c h2_lab.c h2_lab_peer.c)
endforeach()
