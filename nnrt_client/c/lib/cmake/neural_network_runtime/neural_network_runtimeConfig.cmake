# find_package(neural_network_runtime) gives the target neural_network_runtime::neural_network_runtime.
get_filename_component(_nnrt "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET neural_network_runtime::neural_network_runtime)
  add_library(neural_network_runtime::neural_network_runtime SHARED IMPORTED)
  set_target_properties(neural_network_runtime::neural_network_runtime PROPERTIES
    IMPORTED_LOCATION "${_nnrt}/lib/libneural_network_runtime.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_nnrt}/include")
endif()
