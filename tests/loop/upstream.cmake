# Pools of connections, host names, learnt facts: upstream/.
foreach(test test_upstream_pool test_upstream_resolver test_upstream_facts)
    tributary_loop_test(${test} ${test}.c PARTS tributary_upstream tributary_call tributary_stats)
endforeach()
