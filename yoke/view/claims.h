// yoke/view/claims.h -- claims and the queue as a table and as JSON. Pure.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/claim/ledger.h"
#include "yoke/claim/report.h"
#include "yoke/claim/reservation.h"
#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::view {

/// A device that somebody holds.
struct ClaimRow {
  std::string id;    ///< As in `yoke devices`; empty if the device is not known.
  std::string uuid;  ///< Or the key of its lock, if the device is not known or has no UUID.
  std::string user;  ///< A name, or a number if there is no name; empty if the kernel does not tell.
  std::optional<int64_t> pid;
  std::optional<claim::Time> since, until;
  std::string purpose;
  /// For how long it has been idle; 0: it is used now; nullopt: not known.
  std::optional<std::chrono::seconds> idle;
  std::string remark;                       ///< Why it is not an ordinary claim.
  std::optional<int64_t> share_bytes = {};  ///< What it uses of a device that others may share; nullopt: all of it.
};

/// Turns a uid into a name.
using UserName = std::function<std::string(int64_t)>;

/// `snapshot`: the devices of this machine at this moment, as far as they are known.
std::vector<ClaimRow> claim_rows(const claim::Survey& survey, const device::Snapshot& snapshot,
                                 const UserName& user_name);

Table claim_table(const std::vector<ClaimRow>& rows, claim::Time now);
/// `waits`: expected, for each ticket of the survey (claim::expected_waits).
using Waits = std::vector<std::optional<std::chrono::seconds>>;
Table queue_table(const claim::Survey& survey, const Waits& waits, claim::Time now, const UserName& user_name);

/// A reservation as it is shown.
struct ReservationRow {
  claim::Reservation reservation;
  int64_t num_left = 0;  ///< Devices that its user has not taken yet.
  std::string remark;    ///< Why it is not honoured; empty: it is.
};
Table reservation_table(const std::vector<ReservationRow>& rows, claim::Time now, const UserName& user_name);
nlohmann::ordered_json reservations_json(const std::vector<ReservationRow>& rows, const UserName& user_name);

/// {"claims": [...], "queue": [...], "reservations": [...]}; docs/claim.md has the contract.
nlohmann::ordered_json claims_json(const std::vector<ClaimRow>& rows, const claim::Survey& survey, const Waits& waits,
                                   const std::vector<ReservationRow>& reservations, const UserName& user_name);

/// Adds `claims` to each device and MIG instance of device::to_json(), as docs/devices.md has it. `choices`: the
/// devices of `json`, in the same order. nullptr: the claims are not known.
void add_claims(nlohmann::ordered_json& json, const std::vector<device::Choice>& choices,
                const std::vector<ClaimRow>* rows);

/// Hours by user and device (`yoke claims --report`), with a row for all devices of a user who had several. `snapshot`
/// says which devices there are now. kExact: for programs, with all digits, and nothing where a value is not known.
enum class Figures { kRounded, kExact };
Table report_table(const std::vector<claim::ReportRow>& rows, const device::Snapshot& snapshot,
                   const UserName& user_name, Figures figures = Figures::kRounded);
nlohmann::ordered_json report_json(const std::vector<claim::ReportRow>& rows, const device::Snapshot& snapshot,
                                   claim::Time from, claim::Time now, const UserName& user_name);

/// Who has claimed the device of this id, and for how long it has been idle: "ada", "ada, idle 40 min", "ada, bob";
/// empty if nobody has. `with_idle`: adds the time.
std::string claim_text(const std::vector<ClaimRow>& rows, const std::string& id, bool with_idle);

/// For each device of the snapshot (and each MIG instance), by id: who has claimed it, "ada until 3:07"; nothing for
/// those that nobody has.
std::map<std::string, std::string> claim_labels(const std::vector<ClaimRow>& rows);

}  // namespace yoke::view
