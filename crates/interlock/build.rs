//! How the binary is linked.
//!
//! A position-independent program of this size has 25,000 pointers that the loader sets at every start. Packed, their
//! list is a fiftieth, and `interlock exec`, which stands before every run of a job, starts a millisecond earlier. The
//! C library must know the form: glibc does from 2.36 on, and we ask only the one that we build on.

#![expect(
    clippy::disallowed_methods,
    reason = "Cargo talks to build scripts through the environment"
)]

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    let is_glibc = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|name| name == "gnu");
    if is_native && is_glibc && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library, if it says so.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
