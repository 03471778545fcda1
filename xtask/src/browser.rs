//! `cargo xtask browser`: the tests of the pages in a real browser, alone.

use crate::{
    progress,
    tools::{self, Need},
};

/// Runs them all, or those whose name contains a word.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    tools::ensure(Need::Browser)?;
    let name = arguments.first().map_or("", String::as_str);
    let filter = format!("test(/^browser::.*{name}/)");
    let arguments = ["nextest", "run", "-p", "interlock", "--test", "serve", "-E", &filter];
    progress::run("pages in a browser", progress::cargo(&arguments), progress::read_cargo)
}
