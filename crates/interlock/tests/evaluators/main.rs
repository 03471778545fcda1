//! Evaluators: real programs under the real guard, real sockets.
//!
//! Where the cases of the earlier Interlock are (facts, cases 38 to 43):
//!
//! | case | here |
//! |---|---|
//! | 38 engine | `case_38_*` in `interlock-core/src/readiness/tests.rs`; asked concurrently: `limits::evaluators_are_asked_at_the_same_time`; no alert per evaluation: what blocks is told once, by SLA and incident (DESIGN §10, §12) |
//! | 39 readiness rules | `case_39_*` in `interlock-core/src/readiness/tests.rs`; an unknown rule is an error in the file instead of a silent fallback |
//! | 40 subprocess | `programs::case_40_*`; what an evaluator cannot do is `ERROR`, not `FAIL`: "no" and "cannot tell" are different news (facts D1-21) |
//! | 41 HTTP | `services::case_41_*`; there is no base URL, a trait names the whole address: no seed asks for one, and an evaluator that is a path is a program |
//! | 42 breaker | `case_42_*` in `interlock-evaluator/src/breaker.rs`, and `limits::case_42_*` here; half-open lets one question through, not any number |
//! | 43 `upstream-job-log` | `dependsOn`: an upstream's slot is read, `case_43_*` in `interlock-core/src/readiness/tests.rs` |
//! | 43 the others | rules on sensors, `builtins::case_43_*`. Not expressible as a rule: which of a list of windows is missing; a program can tell |
//!
//! The builtins were for Lambda, where no program could be shipped; no seed asks for them by name. `builtin:x` is
//! answered with what to write instead (`interlock-evaluator/src/command.rs`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "real processes in real time are what is tested")]

mod builtins;
mod house;
mod limits;
mod programs;
#[path = "../../../interlock-trigger/tests/it/server.rs"]
mod server;
mod services;
mod survival;
