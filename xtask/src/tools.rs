//! The programs that a command needs beside cargo, and how to get them.
//!
//! A missing one is installed where that is possible without asking (root, and `apt-get` is
//! there); elsewhere the command stops with a sentence that names package and command.

use std::fs;

use crate::shell;

/// What a program is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// `cargo xtask test` and `tidy`.
    Test,
    /// `cargo xtask fuzz`.
    Fuzz,
    /// `cargo xtask bench`.
    Bench,
}

/// A program, and the Debian package that has it.
struct Tool {
    /// Its name, or a command that works once it is there.
    program: &'static str,
    package: &'static str,
    needs: &'static [Need],
    why: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "git",
        package: "git",
        needs: &[Need::Test],
        why: "tidy asks it which files belong to the repository",
    },
    Tool {
        program: "strace",
        package: "strace",
        needs: &[Need::Test],
        why: "the crash tests kill processes at chosen system calls with it",
    },
    Tool {
        program: "curl",
        package: "curl",
        needs: &[Need::Test],
        why: "pings are tested with the client that people use",
    },
    Tool {
        program: "python3 -c 'import requests'",
        package: "python3-requests",
        needs: &[Need::Test],
        why: "pings are tested with Python's requests",
    },
    Tool {
        program: "openssl",
        package: "openssl",
        needs: &[Need::Test],
        why: "mail is tested over TLS with a certificate that it makes",
    },
    Tool {
        program: "wrk",
        package: "wrk",
        needs: &[Need::Bench],
        why: "it measures how many pings are taken",
    },
    Tool {
        program: "redis-server",
        package: "redis-server",
        needs: &[Need::Test],
        why: "the store on Redis is tested against a real one",
    },
    Tool {
        program: "postgres",
        package: "postgresql",
        needs: &[Need::Test],
        why: "the store on PostgreSQL is tested against a real one",
    },
    Tool {
        program: "pgbouncer",
        package: "pgbouncer",
        needs: &[Need::Test],
        why: "the store on PostgreSQL is tested behind its transaction pooling",
    },
    Tool {
        program: "g++",
        package: "g++",
        needs: &[Need::Fuzz],
        why: "the fuzzing engine (libFuzzer) is C++ and is compiled here",
    },
];

/// What can be done about a missing program on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// We are root and `apt-get` is there.
    Install,
    /// The user must do it.
    Ask,
}

/// Makes sure that everything needed for something is there.
pub(crate) fn ensure(need: Need) -> Result<(), String> {
    TOOLS
        .iter()
        .filter(|tool| tool.needs.contains(&need))
        .filter(|tool| !is_there(tool.program))
        .try_for_each(|tool| provide(tool, means()))
}

/// Whether a program is on the path (not all of them have a version) and, if it is given with arguments, does that; or
/// whether it is where Debian keeps those of each PostgreSQL.
fn is_there(program: &str) -> bool {
    let find =
        if program.contains(' ') { program.to_owned() } else { format!("command -v {program}") };
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    shell::works(shell::program("sh").args(["-c", &find]))
        || versions.map(|entry| entry.path()).any(|path| path.join("bin").join(program).exists())
}

fn provide(tool: &Tool, means: Means) -> Result<(), String> {
    let Tool { program, package, needs: _, why } = tool;
    match means {
        Means::Ask => Err(format!(
            "{program} is missing ({why}); install it with `sudo apt-get install {package}`, or \
             the like on your system"
        )),
        Means::Install => {
            println!("{program} is missing ({why}): installing the package {package}");
            shell::run(shell::program("apt-get").args(["update", "--quiet"]))?;
            let install = ["install", "--yes", "--no-install-recommends", package];
            shell::run(
                shell::program("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install),
            )
        }
    }
}

fn means() -> Means {
    let root = shell::output(shell::program("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    let apt = shell::works(shell::program("apt-get").arg("--version"));
    if root && apt { Means::Install } else { Means::Ask }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_names_package_and_command() {
        let tool = Tool { program: "gizmo", package: "gizmo-bin", needs: &[], why: "it turns" };
        let reason = provide(&tool, Means::Ask).unwrap_err();
        assert!(reason.contains("gizmo is missing (it turns)"), "{reason}");
        assert!(reason.contains("apt-get install gizmo-bin"), "{reason}");
    }

    #[test]
    fn what_the_tests_need_is_here_while_they_run() {
        assert_eq!(ensure(Need::Test), Ok(()));
    }
}
