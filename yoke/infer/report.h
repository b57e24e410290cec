// yoke/infer/report.h -- what rank 0 tells while it predicts, and at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "yoke/infer/request.h"
#include "yoke/train/predict/predict.h"

namespace yoke::infer {

struct ReportFacts {
  std::string kind, input;
  std::vector<std::string> left_out;  ///< See Reader.
  std::string device;
  int64_t num_ranks = 1, batch_size = 1;
  bool is_found = false;     ///< The batch size was found by trying.
  bool is_complete = false;  ///< The file is there, and nothing is computed. What made it is not known.
};

/// Progress and what went wrong are for standard error, and the summary for standard output.
class Report {
 public:
  Report(const Request& request, ReportFacts facts, bool is_shown);
  /// A line that is overwritten on a terminal; otherwise one every 30 s.
  void show(const train::PredictProgress& progress);
  void finish(const train::PredictResult& result) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::string rate_of(const train::PredictProgress& progress, double seconds) const;
  std::vector<std::string> first_left_out() const;
  void print_json(const train::PredictResult& result, double seconds) const;

  const Request& request_;
  ReportFacts facts_;
  bool is_shown_, is_on_terminal_;
  bool is_drawn_ = false;  ///< The terminal's last line is one that the next may overwrite.
  Time start_, next_;
};

}  // namespace yoke::infer
