//! Reading the figures that criterion leaves in its folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::Value;

use super::table::Measurement;

/// When each result in criterion's folder was written.
pub(super) type Stamps = BTreeMap<PathBuf, SystemTime>;

/// The results that are there now, to tell the new ones by later.
pub(super) fn stamps(home: &Path) -> Stamps {
    let mut found = Stamps::new();
    let mut open = vec![home.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.ends_with("new/estimates.json")
                && let Ok(written) = entry.metadata().and_then(|metadata| metadata.modified())
            {
                found.insert(path, written);
            }
        }
    }
    found
}

/// Reads the results that were written since `before`.
pub(super) fn measurements(home: &Path, before: &Stamps) -> Result<Vec<Measurement>, String> {
    stamps(home)
        .iter()
        .filter(|(path, written)| before.get(*path) != Some(written))
        .map(|(path, _)| {
            let estimates = read(path)?;
            let benchmark = read(&path.with_file_name("benchmark.json"))?;
            measurement(&benchmark, &estimates)
                .ok_or_else(|| format!("{} is not as criterion writes it", path.display()))
        })
        .collect()
}

/// A measurement from criterion's two files about one benchmark.
fn measurement(benchmark: &Value, estimates: &Value) -> Option<Measurement> {
    let point = |name: &str| estimates[name]["point_estimate"].as_f64();
    let nanoseconds = point("slope").or_else(|| point("mean"))?;
    let spread = point("std_dev")? / point("mean")?;
    let elements = benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let name = benchmark["full_id"].as_str()?;
    Some(Measurement::timed(name, nanoseconds / 1e9, elements, spread))
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slope_is_preferred_to_mean_and_elements_are_counted() {
        let estimate = |value: f64| json!({"point_estimate": value});
        let benchmark = json!({"full_id": "schedule/next", "throughput": {"Elements": 1000}});
        let mut estimates =
            json!({"slope": estimate(50.0), "mean": estimate(60.0), "std_dev": estimate(6.0)});
        let expected = Measurement::timed("schedule/next", 50e-9, 1000.0, 0.1);
        assert_eq!(measurement(&benchmark, &estimates), Some(expected));
        estimates["slope"] = Value::Null;
        let expected = Measurement::timed("schedule/next", 60e-9, 1000.0, 0.1);
        assert_eq!(measurement(&benchmark, &estimates), Some(expected));
    }

    #[test]
    fn foreign_file_gives_nothing() {
        assert_eq!(measurement(&json!({}), &json!({})), None);
    }
}
