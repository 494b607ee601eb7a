#pragma once

#include <string>
#include <string_view>

namespace jitgemm {

/// What an epilogue's code, which begins in this line of its text, may not say, as "line 3: ..." with what to do
/// instead; empty if there is nothing. It looks at words and brackets alone: what only a compiler sees comes later.
/// `takes_pairs`: the function has two sums.
std::string why_code_refused(std::string_view code, int first_line, bool takes_pairs);

/// The first error in the caller's own text that a compiler's log has, as one line; empty if there is none.
std::string error_of_epilogue(std::string_view log);

/// Whether it is a name that an epilogue's operand can have.
bool is_operand_name(std::string_view name);

}  // namespace jitgemm
