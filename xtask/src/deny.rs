//! `cargo xtask deny`: licences, bans, sources and advisories of what is built in.
//!
//! The rules are in `deny.toml`. `cargo-deny` is not part of a toolchain and takes minutes to
//! compile, so `cargo xtask test` does without it.

use crate::shell;

/// Runs `cargo deny` where it is installed, and says how to get it elsewhere.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    shell::no_arguments(arguments)?;
    if !shell::works(&mut shell::cargo(&["deny", "--version"])) {
        return Err(
            "cargo-deny is not installed; `cargo install --locked cargo-deny` builds it".to_owned()
        );
    }
    let local = check(&["bans", "licenses", "sources"]);
    // Fetches its database, so it comes last and fails alone where there is no network.
    let advisories = check(&["advisories"]);
    local.and(advisories)
}

fn check(what: &[&str]) -> Result<(), String> {
    shell::run(shell::cargo(&["deny", "--workspace", "check"]).args(what))
}
