# Writes the file TESTS for ctest, with an entry for each suite of the GoogleTest program PROGRAM (yoke_discover_suites).
execute_process(COMMAND "${PROGRAM}" --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listing}")
list(TRANSFORM suites STRIP)
set(content)
foreach(suite IN LISTS suites)
  string(APPEND content "add_test([=[${PREFIX}${suite}*]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}*]=])\n"
         "set_tests_properties([=[${PREFIX}${suite}*]=] PROPERTIES FAIL_REGULAR_EXPRESSION [=[\\[  SKIPPED ]]=] "
         "${PROPERTIES})\n")
endforeach()
file(WRITE "${TESTS}" "${content}")
