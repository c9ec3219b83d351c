# HTTP/2 connections: proxy/net/h2*.
tributary_loop_test(test_h2 test_h2.c h2_lab.c)
tributary_loop_test(test_h2_faults test_h2_faults.c h2_lab.c)
tributary_loop_test(test_h2_random test_h2_random.c h2_lab.c)
