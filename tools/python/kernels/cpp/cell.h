// What every cell of a C++ notebook may use.
#pragma once

#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace yoke_cell {

/// Whether the user has interrupted the cell. A long loop that asks this and ends keeps all variables; a cell that is
/// still running two seconds after the interrupt is ended together with its variables.
bool is_interrupted();

/// Prints the value of the cell's last expression.
template <typename T>
void show(const T& value) {
  if constexpr (requires(std::ostream & out) { out << value; }) {
    std::cout << value << '\n';
  } else if constexpr (requires(std::ostream & out) { out << *value.begin(); }) {
    std::cout << '{';
    const char* separator = "";
    for (const auto& part : value) std::cout << std::exchange(separator, ", ") << part;
    std::cout << "}\n";
  }
}

/// Evaluates the cell's last expression, and prints its value if it has one.
template <typename Expression>
void show_result(const Expression& expression) {
  if constexpr (std::is_void_v<decltype(expression())>) {
    expression();
  } else {
    show(expression());
  }
}

}  // namespace yoke_cell
