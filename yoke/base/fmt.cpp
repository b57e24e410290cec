// Compiles fmt once. Header-only, fmt would be compiled in every file that formats something: 2.3 s each, half of the
// build. As a shared library, fmt would have to be found at each start, and be on each machine that the command is
// copied to.
#include <fmt/format-inl.h>

#if FMT_VERSION < 90000 || FMT_VERSION >= 100000
#error "another version of fmt defines other templates elsewhere; CMakeLists.txt takes it header-only"
#endif

// Instantiates the templates that yoke uses and fmt's headers only declare.
template auto fmt::detail::dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
