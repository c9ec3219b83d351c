# The call on a real loop, between fake ends: no socket, no HTTP.
foreach(stem call_life call_tries call_credit)
    tributary_loop_test(test_${stem} test_${stem}.c call_lab.c PARTS tributary_call tributary_stats)
endforeach()
