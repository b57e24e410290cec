#include "yoke/contract/failure_place.h"

#include <atomic>
#include <exception>

namespace yoke {
namespace {

constinit std::atomic<FailurePlace> place_of = nullptr;
constinit std::atomic<ThrownText> text_of_thrown = nullptr;

}  // namespace

void set_failure_place(FailurePlace place, ThrownText text) {
  place_of = place;
  text_of_thrown = text;
}

std::string failure_place(bool is_error_of_yoke) noexcept {
  try {
    const FailurePlace function = place_of;
    const auto place = function == nullptr ? std::string() : function(is_error_of_yoke);
    return place.empty() ? "" : " (" + place + ")";
  } catch (const std::exception&) {  // the program must report its own error
    return "";
  }
}

std::string thrown_text() noexcept {
  try {
    const ThrownText function = text_of_thrown;
    return function == nullptr ? std::string() : function();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace yoke
