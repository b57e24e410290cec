// yoke/curve/log.h -- the metrics that a training recorded, and parsers of the formats that contain them. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace yoke::curve {

inline constexpr std::string_view kStep = "step", kEpoch = "epoch", kTime = "time";

/// The values of one metric in the order in which they were written. `steps`, `epochs` and `times` have one element for
/// each value, which is NaN if the log does not contain it. If the log contains none, the vector is empty.
struct Curve {
  std::string metric;
  std::vector<double> values;
  std::vector<double> steps;
  std::vector<double> epochs;
  std::vector<double> times;  ///< In seconds.
};

/// The position of a value on the x axes of a curve. NaN means that the number is not known.
struct Position {
  double step, epoch, time;
};

class Log {
 public:
  void add(std::string_view metric, const Position& place, double value);
  /// Removes the values of `step` and of later steps, because a training resumed at `step` writes them again.
  void forget_from(double step);
  /// Removes vectors of steps, epochs or times that hold only NaN. If none is left, each value gets its index as step.
  void finish();

  const std::vector<Curve>& curves() const { return curves_; }  ///< In the order of their first values.
  std::vector<Curve>& curves() { return curves_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<Curve> curves_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> numbers_;
  size_t next_ = 0;  ///< The curve to try first for the next value, because logs repeat the order of metrics.
};

/// Parses a file piece by piece and adds its values to a log.
class Parser {
 public:
  explicit Parser(Log& log) : log_(log) {}
  virtual ~Parser() = default;
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  /// Parses the complete records at the beginning of `bytes`, and returns their length. The next call gets the rest
  /// again, followed by new bytes. If `is_end`, nothing follows, and an incomplete last record is ignored.
  virtual size_t take(std::string_view bytes, bool is_end) = 0;

  int64_t num_damaged() const { return num_damaged_; }         ///< Records that could not be read.
  const std::string& first_damage() const { return damage_; }  ///< Describes the first damage: "line 3 is not JSON".
  const std::string& first_doubt() const { return doubt_; }    ///< What was read, but may not be what was meant.

 protected:
  Log& log() { return log_; }
  void damaged(std::string what);
  void doubt(std::string_view what);

 private:
  Log& log_;
  int64_t num_damaged_ = 0;
  std::string damage_, doubt_;
};

/// Parses CSV: a header, and lines with numbers. Columns with the names of places (detail/values.h), such as `step`,
/// `epoch` and `time`, are positions; all other columns with numbers are metrics. If a file of train::Run has no column
/// of times, times are running sums of its column `seconds`. An empty cell, a column without a name, and lines that
/// begin with # are skipped. A second header begins new columns. Cells are separated by commas, or else by tabs or
/// semicolons. A last line without a line feed counts if it has all cells.
class CsvParser : public Parser {
 public:
  using Parser::Parser;
  size_t take(std::string_view bytes, bool is_end) override;

 private:
  enum class LineEnd { kIsThere, kIsMissing };
  struct Column {
    std::string name;
    double Position::*place = nullptr;  ///< Null if it is no position.
    bool is_metric = false;
    bool has_numbers = false;
  };
  void take_line(std::string_view line, LineEnd end);
  void split_cells(std::string_view line);
  std::span<const std::string> cells() const;
  bool begin(std::string_view line);
  void begin_columns();
  bool is_header() const;
  void take_cells(LineEnd end);

  std::vector<Column> columns_;
  std::vector<std::string> cells_;  ///< Of the current line. Reused, so strings keep memory.
  size_t num_cells_ = 0;
  int64_t num_lines_ = 0;
  char line_end_ = '\n', separator_ = ',';
  std::string comment_;  ///< The last comment before the header.
  bool adds_seconds_ = false;
  double seconds_ = 0;
};

/// Adds the numbers of JSON objects. Names of places (detail/values.h), such as `step`, `epoch` and `time`, are
/// positions; all other numbers are metrics, those of an object within the object by both names, as in `train/loss`.
/// null, NaN and Infinity, with or without quotes, are values that are not finite. If an object has the array
/// `log_history`, as trainer_state.json of Hugging Face, its elements are the objects.
class JsonParser : public Parser {
 public:
  using Parser::Parser;

 protected:
  void take_object(const nlohmann::json& object);
  void add_values();
  std::vector<std::pair<std::string, double>> numbers_;  ///< Of the current object. Reused, so strings keep memory.
  size_t num_numbers_ = 0;

 private:
  void take_numbers(const nlohmann::json& object);
  void collect(const nlohmann::json& object, const std::string& prefix, int depth);
};

/// Parses JSON lines, with an object in each line.
class JsonLinesParser : public JsonParser {
 public:
  using JsonParser::JsonParser;
  size_t take(std::string_view bytes, bool is_end) override;

 private:
  void take_line(std::string_view line);
  bool take_flat(std::string_view line);
  int64_t num_lines_ = 0;
};

/// Parses a file that is one object, or one array of objects.
class JsonDocumentParser : public JsonParser {
 public:
  using JsonParser::JsonParser;
  size_t take(std::string_view bytes, bool is_end) override;
};

/// Parses a TensorBoard event file: TensorFlow records (length, CRC-32C, content, CRC-32C) that contain messages of
/// type `Event`. Metrics are the simple values, and the tensors with one number.
class EventParser : public Parser {
 public:
  using Parser::Parser;
  size_t take(std::string_view bytes, bool is_end) override;

  /// Returns whether `bytes` begin with the header of a TensorFlow record.
  static bool is_event_file(std::string_view bytes);

 private:
  bool take_event(std::string_view event);
  uint64_t offset_ = 0;
  bool is_lost_ = false;  ///< A length was damaged, so the next record cannot be found.
};

}  // namespace yoke::curve
