foreach(stem base64 content_type encoding error_json header_class http1 http1_strict percent prefix status
             status_proto timeout)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c LIBS tributary_wire tributary_base)
endforeach()
