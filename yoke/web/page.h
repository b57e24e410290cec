// yoke/web/page.h -- the machine at a glance as HTML. Pure.
//
// Names of users and programs, command lines and purposes are texts of other users. html_text() is the only way by
// which they reach the page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "yoke/device/device.h"
#include "yoke/web/history.h"

namespace yoke::web {

/// The machine at one moment: what all paths of the server show.
struct Machine {
  device::Snapshot snapshot;
  nlohmann::ordered_json claims = nullptr;  ///< As view::claims_json() has it; null if the claims are not known.
  std::string claims_problem = {};          ///< Why they are not known.
};

/// Returns `text` made printable and quoted, for the content of an element and for an attribute in quotation marks.
std::string html_text(std::string_view text);

/// The whole page, with its style, its script and both parts below. It needs nothing else and no script.
std::string page(const Machine& state, const History& history);

/// <main id="live">, which changes with each sample. The script of an open page replaces it.
std::string live_part(const Machine& state, const History& history);

/// <section id="day">: the graphs of 24 hours.
std::string day_part(const Machine& state, const History& history);

/// The header Content-Security-Policy: nothing may run or be loaded but the page's own style and script.
std::string content_security_policy();

/// docs/web.md has the contract.
nlohmann::ordered_json state_json(const Machine& state);

}  // namespace yoke::web
