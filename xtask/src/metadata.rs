//! What `cargo metadata` says about the workspace, reduced to what the commands ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde_json::Value;

use crate::shell;

/// A crate of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its manifest, from the repository's root.
    pub(crate) manifest: String,
    /// What its manifest depends on.
    pub(crate) dependencies: Vec<Dependency>,
    /// The names of its benchmarks.
    pub(crate) benches: Vec<String>,
}

/// A line in a manifest's dependency tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The crate.
    pub(crate) name: String,
    /// Whether it serves tests and benchmarks only.
    pub(crate) development: bool,
    /// The features asked for, `default` among them.
    pub(crate) features: Vec<String>,
}

/// Reads the workspace's crates.
pub(crate) fn packages() -> Result<Vec<Package>, String> {
    let metadata = read(&["--no-deps"])?;
    let root = format!("{}/", text(&metadata["workspace_root"]));
    Ok(list(&metadata["packages"]).iter().map(|package| read_package(package, &root)).collect())
}

/// The folder into which cargo builds.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    Ok(PathBuf::from(text(&read(&["--no-deps"])?["target_directory"])))
}

/// The names of all crates that one links, itself excluded, tests and benchmarks aside.
///
/// Features are united over the workspace, and optional crates count when a feature mentions them,
/// so the answer may name more than is linked, and never less.
pub(crate) fn closure(package: &str) -> Result<BTreeSet<String>, String> {
    closure_in(&read(&["--locked", "--filter-platform", &host()?])?, package)
}

/// The triple of this machine, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host() -> Result<String, String> {
    let printed = shell::output(shell::program("rustc").arg("-vV"))?;
    let host = printed.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn closure_in(metadata: &Value, package: &str) -> Result<BTreeSet<String>, String> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let uses: BTreeMap<&str, Vec<&str>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(&node["id"]), linked(node)))
        .collect();
    let start = names.iter().find(|(_, name)| **name == package).map(|(id, _)| *id);
    let start = start.ok_or_else(|| format!("cargo metadata knows no crate {package}"))?;
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        let next = uses.get(id).into_iter().flatten();
        open.extend(next.filter(|id| reached.insert(**id)));
    }
    Ok(reached.iter().filter_map(|id| names.get(id)).map(|name| (*name).to_owned()).collect())
}

/// What a node of the resolved graph depends on other than for tests and benchmarks.
fn linked(node: &Value) -> Vec<&str> {
    let normal = |dependency: &&Value| {
        list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev")
    };
    list(&node["deps"]).iter().filter(normal).map(|dependency| text(&dependency["pkg"])).collect()
}

fn read(arguments: &[&str]) -> Result<Value, String> {
    let mut command = shell::cargo(&["metadata", "--format-version", "1", "--quiet"]);
    let printed = shell::output(command.args(arguments))?;
    serde_json::from_str(&printed).map_err(|error| format!("cargo metadata: {error}"))
}

fn read_package(package: &Value, root: &str) -> Package {
    let manifest = text(&package["manifest_path"]);
    let benches = list(&package["targets"])
        .iter()
        .filter(|target| list(&target["kind"]).iter().any(|kind| kind == "bench"))
        .map(|target| text(&target["name"]).to_owned())
        .collect();
    Package {
        name: text(&package["name"]).to_owned(),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).to_owned(),
        dependencies: list(&package["dependencies"]).iter().map(read_dependency).collect(),
        benches,
    }
}

fn read_dependency(dependency: &Value) -> Dependency {
    let default = (dependency["uses_default_features"] == true).then_some("default");
    let features = list(&dependency["features"]).iter().map(text);
    Dependency {
        name: text(&dependency["name"]).to_owned(),
        development: dependency["kind"] == "dev",
        features: default.into_iter().chain(features).map(str::to_owned).collect(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn closure_follows_links_and_leaves_tests_out() {
        let dependency = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                {"id": "1", "name": "core"}, {"id": "2", "name": "jiff"},
                {"id": "3", "name": "tokio"}, {"id": "4", "name": "proptest"},
            ],
            "resolve": {"nodes": [
                {"id": "1", "deps": [dependency("2", Value::Null), dependency("4", json!("dev"))]},
                {"id": "2", "deps": [dependency("3", Value::Null)]},
                {"id": "3", "deps": []},
                {"id": "4", "deps": []},
            ]},
        });
        let reached = closure_in(&metadata, "core").unwrap();
        assert_eq!(reached.into_iter().collect::<Vec<_>>(), ["jiff", "tokio"]);
    }

    #[test]
    fn this_crate_is_in_the_workspace() {
        let packages = packages().unwrap();
        let here = packages.iter().find(|package| package.name == "xtask").unwrap();
        assert_eq!(here.manifest, "xtask/Cargo.toml");
        let named = |name: &str, development: bool| Dependency {
            name: name.to_owned(),
            development,
            features: vec!["default".to_owned()],
        };
        let expected = [named("serde_json", false), named("interlock-wait", true)];
        assert_eq!(here.dependencies, expected);
    }
}
