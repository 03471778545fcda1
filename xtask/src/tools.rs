//! The programs that a command needs beside cargo, and how to get them.
//!
//! A missing one is installed where that is possible without asking: a crate by `cargo install`, a package as root with
//! `apt-get`. Elsewhere the command stops before it has done anything, and names each missing program with the command that
//! installs it. `cargo xtask test` can leave a program out with what needs it (`--without`).

use std::{fs, path::PathBuf, process::Command};

use crate::{metadata, progress, shell};

/// What a program is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// `cargo xtask test`.
    Test,
    /// `cargo xtask tidy`.
    Tidy,
    /// `cargo xtask fuzz`.
    Fuzz,
    /// `cargo xtask bench`.
    Bench,
    /// `cargo xtask browser`.
    Browser,
}

/// A program, and where it comes from.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Its name, by which `--without` knows it too.
    pub(crate) name: &'static str,
    /// A shell command that works once it is there; empty if its name only has to be on the path.
    probe: &'static str,
    source: Source,
    needs: &'static [Need],
    why: &'static str,
    /// The tests that cannot do without it, as a filterset of cargo-nextest.
    pub(crate) tests: &'static str,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A Debian package.
    Package(&'static str),
    /// A crate in this version, compiled for speed of compiling: it waits for others most of the time.
    Crate(&'static str),
    /// A part of the Rust toolchain.
    Component,
    /// A Python package in this version, in an environment of our own ([`local_tools`]).
    Python(&'static str),
    /// Packages of npm with their versions, in a folder of our own ([`local_tools`]).
    Node(&'static [&'static str]),
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "rustfmt",
        probe: "cargo fmt --version",
        source: Source::Component,
        needs: &[Need::Test],
        why: "it checks the formatting",
        tests: "",
    },
    Tool {
        name: "clippy",
        probe: "cargo clippy --version",
        source: Source::Component,
        needs: &[Need::Test],
        why: "it checks the lints",
        tests: "",
    },
    Tool {
        name: "cargo-nextest",
        probe: "cargo nextest --version",
        source: Source::Crate("0.9.143"),
        needs: &[Need::Test],
        why: "it runs each test in a process of its own, several at once",
        tests: "all()",
    },
    Tool {
        name: "git",
        probe: "",
        source: Source::Package("git"),
        needs: &[Need::Test, Need::Tidy],
        why: "tidy asks it which files belong to the repository",
        tests: "",
    },
    Tool {
        name: "strace",
        probe: "",
        source: Source::Package("strace"),
        needs: &[Need::Test],
        why: "the crash tests kill processes at chosen system calls with it",
        tests: "(binary(serve) & test(/^points|^watched/)) + (package(interlock-liveness) & test(/^ends/))",
    },
    Tool {
        name: "curl",
        probe: "",
        source: Source::Package("curl"),
        needs: &[Need::Test],
        why: "pings are tested with the client that people use",
        tests: "binary(serve) & test(/^api|^logs_elsewhere|^ourselves|^pings|^servers|^stream_soak|^tls/)",
    },
    Tool {
        name: "python3-requests",
        probe: "python3 -c 'import requests'",
        source: Source::Package("python3-requests"),
        needs: &[Need::Test],
        why: "pings are tested with Python's requests",
        tests: "binary(serve) & test(/^pings/)",
    },
    Tool {
        name: "openssl",
        probe: "",
        source: Source::Package("openssl"),
        needs: &[Need::Test],
        why: "HTTPS and mail over TLS are tested with certificates that it makes",
        tests: "test(/(^|::)tls/) + package(interlock-postgres) + (binary(serve) & test(/^https|^logs_elsewhere|^places/)) + (binary(commands) & test(/^mail/))",
    },
    Tool {
        name: "wrk",
        probe: "",
        source: Source::Package("wrk"),
        needs: &[Need::Bench],
        why: "it measures how many pings are taken, and how soon lists are there",
        tests: "",
    },
    Tool {
        name: "python3-venv",
        probe: "python3 -c 'import ensurepip, venv'",
        source: Source::Package("python3-venv"),
        needs: &[Need::Test],
        why: "programs written in Python are installed in an environment of our own",
        tests: "binary(serve) & test(/^api::contract/)",
    },
    Tool {
        name: "npm",
        probe: "",
        source: Source::Package("npm"),
        needs: &[Need::Test],
        why: "it fetches what makes a client of the API from its document",
        tests: "binary(serve) & test(/^api::contract/)",
    },
    Tool {
        name: "schemathesis",
        probe: "",
        source: Source::Python("4.32.5"),
        needs: &[Need::Test],
        why: "it asks the API everything that its document allows, and more",
        tests: "binary(serve) & test(/^api::contract/)",
    },
    Tool {
        name: "openapi-typescript",
        probe: "",
        source: Source::Node(&[
            "openapi-typescript@7.13.0",
            "openapi-fetch@0.17.0",
            "typescript@5.9.3",
        ]),
        needs: &[Need::Test],
        why: "it makes a client of the API from its document",
        tests: "binary(serve) & test(/^api::contract/)",
    },
    Tool {
        name: "chromium",
        probe: "",
        source: Source::Package("chromium"),
        needs: &[Need::Test, Need::Browser],
        why: "the pages are tested in a real browser",
        tests: "binary(serve) & test(/^browser/)",
    },
    Tool {
        name: "playwright-core",
        probe: "",
        source: Source::Node(&["playwright-core@1.65.1", "@axe-core/playwright@4.13.0"]),
        needs: &[Need::Test, Need::Browser],
        why: "it does in a browser what people do, and looks whether everybody can",
        tests: "binary(serve) & test(/^browser/)",
    },
    Tool {
        name: "redis-server",
        probe: "",
        source: Source::Package("redis-server"),
        needs: &[Need::Test],
        why: "the store on Redis is tested against a real one",
        tests: "(package(interlock-store-redis) & kind(test)) + package(interlock-private-server) + (package(interlock-archive) & test(/redis/)) + (binary(serve) & test(/redis|^(api::instances|ha|hung|leader|moving|places|primaries|rollback|servers)::/)) + (binary(commands) & test(/^supervise|^validate/))",
    },
    Tool {
        name: "postgres",
        probe: "",
        source: Source::Package("postgresql"),
        needs: &[Need::Test],
        why: "the store on PostgreSQL is tested against a real one",
        tests: "((package(interlock-store-postgres) + package(interlock-archive) + package(interlock-postgres)) & kind(test)) + package(interlock-private-server) + (binary(serve) & test(/postgres|^(archive|ha|moving|places|rollback|servers)::/))",
    },
    Tool {
        name: "pgbouncer",
        probe: "",
        source: Source::Package("pgbouncer"),
        needs: &[Need::Test],
        why: "the store on PostgreSQL is tested behind its transaction pooling",
        tests: "(package(interlock-store-postgres) & test(/^conformance|^hints/)) + package(interlock-private-server)",
    },
    Tool {
        name: "g++",
        probe: "",
        source: Source::Package("g++"),
        needs: &[Need::Fuzz],
        why: "the fuzzing engine (libFuzzer) is C++ and is compiled here",
        tests: "",
    },
];

/// What this machine lets us do about a missing program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Means {
    /// We are root and `apt-get` is there.
    can_install_packages: bool,
}

/// Makes sure that everything needed for something is there.
pub(crate) fn ensure(need: Need) -> Result<(), String> {
    ensure_but(need, &[])
}

/// Makes sure that everything needed for something is there, but for what is left out.
pub(crate) fn ensure_but(need: Need, without: &[&Tool]) -> Result<(), String> {
    let left_out = |tool: &&Tool| without.iter().any(|left| left.name == tool.name);
    let wanted = TOOLS.iter().filter(|tool| tool.needs.contains(&need) && !left_out(tool));
    let missing: Vec<&Tool> = wanted.filter(|tool| !is_there(tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    provide(&missing, means())
}

/// The tools that `--without` may name.
pub(crate) fn of(need: Need) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(move |tool| tool.needs.contains(&need))
}

/// Whether a program is on the path (not all of them have a version), or does what shows that it is there, or is where Debian
/// keeps those of each PostgreSQL.
fn is_there(tool: &Tool) -> bool {
    let Tool { name, probe, source, .. } = tool;
    if let Some(program) = local_program(name, *source) {
        return program.is_ok_and(|program| program.exists());
    }
    let find = if probe.is_empty() { format!("command -v {name}") } else { (*probe).to_owned() };
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    shell::works(shell::program("sh").args(["-c", &find]))
        || versions.map(|entry| entry.path()).any(|path| path.join("bin").join(name).exists())
}

/// The folder of the programs that are installed for this repository alone; tests find them there.
fn local_tools() -> Result<PathBuf, String> {
    Ok(metadata::target_directory()?.join("tools"))
}

/// Where a program is that we install for ourselves; none of those that come from elsewhere.
fn local_program(name: &str, source: Source) -> Option<Result<PathBuf, String>> {
    let folder = match source {
        Source::Python(_) => "python/bin",
        Source::Node(_) => "node/node_modules/.bin",
        Source::Package(_) | Source::Crate(_) | Source::Component => return None,
    };
    Some(local_tools().map(|tools| tools.join(folder).join(name)))
}

/// Installs a program for ourselves, if it is one of those.
fn provide_local(name: &str, source: Source) -> Result<(), String> {
    match source {
        Source::Python(version) => {
            let home = local_tools()?.join("python");
            println!("installing {name} {version} from PyPI");
            shell::run(shell::program("python3").args(["-m", "venv"]).arg(&home))?;
            let mut install = Command::new(home.join("bin/pip"));
            install.args(["install", "--quiet", "--disable-pip-version-check"]);
            shell::run(install.arg(format!("{name}=={version}")))
        }
        Source::Node(packages) => {
            let home = local_tools()?.join("node");
            println!("installing {} from npm", packages.join(", "));
            fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
            let mut install = shell::program("npm");
            install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
            shell::run(install.arg(&home).args(packages))
        }
        Source::Package(_) | Source::Crate(_) | Source::Component => Ok(()),
    }
}

/// Installs what is missing, or says of everything that cannot be installed here how to.
fn provide(missing: &[&Tool], means: Means) -> Result<(), String> {
    let beyond_us: Vec<String> = missing.iter().filter_map(|tool| ask_for(tool, means)).collect();
    if !beyond_us.is_empty() {
        return Err(beyond_us.join("\nxtask: "));
    }
    let packages: Vec<&str> = missing.iter().filter_map(|tool| tool.package()).collect();
    if !packages.is_empty() {
        println!("installing the packages {}", packages.join(", "));
        shell::run(shell::program("apt-get").args(["update", "--quiet"]))?;
        let mut install = shell::program("apt-get");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(packages);
        shell::run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    for Tool { name, source, .. } in missing {
        provide_local(name, *source)?;
        if let Source::Crate(version) = source {
            println!("installing the crate {name}: some minutes, once");
            // Its own updater and tracepoints are a third of what would be compiled.
            let install = [
                "install",
                "--locked",
                "--debug",
                "--no-default-features",
                name,
                "--version",
                version,
            ];
            progress::run(&format!("installing {name}"), progress::cargo(&install), |line| {
                progress::read_cargo(line)
            })?;
        }
    }
    Ok(())
}

impl Tool {
    fn package(&self) -> Option<&'static str> {
        match self.source {
            Source::Package(package) => Some(package),
            Source::Crate(_) | Source::Component | Source::Python(_) | Source::Node(_) => None,
        }
    }
}

/// What the user must do about a missing program that cannot be installed from here.
fn ask_for(tool: &Tool, means: Means) -> Option<String> {
    let Tool { name, source, why, .. } = tool;
    let command = match source {
        Source::Package(_) if means.can_install_packages => return None,
        Source::Crate(_) | Source::Python(_) | Source::Node(_) => return None,
        Source::Package(package) => {
            format!("`sudo apt-get install {package}`, or the like on your system")
        }
        Source::Component => format!("`rustup component add {name}`"),
    };
    Some(format!(
        "{name} is missing ({why}); install it with {command}, or leave out what needs it with \
         `cargo xtask test --without {name}`"
    ))
}

fn means() -> Means {
    let root = shell::output(shell::program("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    let apt = shell::works(shell::program("apt-get").arg("--version"));
    Means { can_install_packages: root && apt }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gizmo(source: Source) -> Tool {
        Tool { name: "gizmo", probe: "", source, needs: &[], why: "it turns", tests: "" }
    }

    #[test]
    fn missing_programs_are_all_named_with_the_command_that_installs_them() {
        let (package, component) = (gizmo(Source::Package("gizmo-bin")), gizmo(Source::Component));
        let means = Means { can_install_packages: false };
        let reason = provide(&[&package, &component], means).unwrap_err();
        assert!(reason.contains("gizmo is missing (it turns)"), "{reason}");
        assert!(reason.contains("apt-get install gizmo-bin"), "{reason}");
        assert!(reason.contains("rustup component add gizmo"), "{reason}");
        assert!(reason.contains("--without gizmo"), "{reason}");
    }

    #[test]
    fn nothing_is_installed_while_something_else_cannot_be() {
        let (package, component) = (gizmo(Source::Package("no-such")), gizmo(Source::Component));
        let means = Means { can_install_packages: true };
        let reason = provide(&[&package, &component], means).unwrap_err();
        assert!(!reason.contains("apt-get"), "{reason}");
    }
}
