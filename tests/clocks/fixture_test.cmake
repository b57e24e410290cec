# The check of clocks must fail on fixture/ and print exactly the lines of expected.txt.
set(here "${CMAKE_CURRENT_LIST_DIR}")
execute_process(COMMAND "${PYTHON}" "${CHECK}" "${here}/fixture" OUTPUT_VARIABLE found RESULT_VARIABLE status
                ERROR_QUIET)
file(READ "${here}/expected.txt" expected)
if(status EQUAL 0)
  message(FATAL_ERROR "check-clocks accepted the fixture")
elseif(NOT found STREQUAL expected)
  message(FATAL_ERROR "check-clocks found\n${found}and not\n${expected}")
endif()
