foreach(stem arena budget check chunk clock fields histogram list log mem rng slab slices strbuf text)
    tributary_unit_test(test_${stem} SOURCES test_${stem}.c LIBS tributary_base)
endforeach()
