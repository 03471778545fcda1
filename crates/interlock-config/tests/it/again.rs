//! S16: a version that the store kept is read as it was, without the files it came from.

use std::{collections::BTreeMap, path::Path};

use interlock_config::{Loaded, LoadedPipeline, decode_version};

use crate::support::{environment, files, load, zones};

const CONFIG: &str = "timezone: Europe/Riga
defaults:
  owner: data
  grace: 30s
  startGrace: 2m
  labels: {team: core, note: \"a: b # c\", odd: \"né\\t\\\"☃\\\"\"}
  env: {LEVEL: \"1\", TOKEN: \"${API_TOKEN}\"}
  retry: {maxAttempts: 4, backoffMultiplier: 1.5}
  tier: 2
";

/// A project of all the good examples, under an `interlock.yaml` that changes what they mean.
fn everything(config: &str) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["calendar", "archetype", "pipeline"] {
        let folder = dir.path().join(format!("{kind}s"));
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in files(&format!("good/{kind}")) {
            std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        }
    }
    std::fs::write(dir.path().join("interlock.yaml"), config).unwrap();
    load(dir.path())
}

fn again(kept: &LoadedPipeline) -> Result<LoadedPipeline, String> {
    decode_version(&kept.source, &kept.context, zones(), &environment)
}

#[track_caller]
fn check(loaded: &Loaded, count: usize) {
    assert!(loaded.pipelines.len() >= count, "only {} pipelines", loaded.pipelines.len());
    for kept in &loaded.pipelines {
        let found = again(kept);
        let found = found.map(|found| LoadedPipeline { file: kept.file.clone(), ..found });
        assert_eq!(found.as_ref(), Ok(kept));
    }
}

#[test]
fn every_example_is_read_again_as_it_was() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
    check(&load(&quickstart), 5);
    check(&everything(""), 10);
    check(&everything(CONFIG), 10);
}

#[test]
fn only_what_a_file_uses_is_kept() {
    let kinds = |loaded: &Loaded| -> BTreeMap<String, Vec<String>> {
        let context = |kept: &LoadedPipeline| kept.context.keys().cloned().collect();
        let pipelines = loaded.pipelines.iter();
        pipelines.map(|kept| (kept.pipeline.name.to_string(), context(kept))).collect()
    };
    let plain = kinds(&everything(""));
    assert!(plain["daily-report"].is_empty(), "{plain:?}");
    assert!(plain.values().flatten().any(|key| key.starts_with("calendar/")), "{plain:?}");
    assert!(plain.values().flatten().any(|key| key.starts_with("archetype/")), "{plain:?}");
    assert_eq!(kinds(&everything(CONFIG))["daily-report"], ["defaults", "timezone"]);
}

#[test]
fn what_cannot_be_read_again_is_a_sentence() {
    let loaded = everything("");
    let uses = |kind: &str| {
        let mut found = loaded.pipelines.iter();
        found.find(|kept| kept.context.keys().any(|key| key.starts_with(kind))).unwrap().clone()
    };
    let mut without = uses("calendar/");
    without.context.retain(|key, _| !key.starts_with("calendar/"));
    assert_eq!(
        again(&without).unwrap_err(),
        "the stored declaration cannot be read: there is no calendar `holidays`"
    );
    let mut broken = uses("archetype/");
    broken.context.values_mut().for_each(|text| text.insert_str(0, "oops: 1\n"));
    let reason = again(&broken).unwrap_err();
    assert!(reason.starts_with("archetype/") && reason.contains("oops"), "{reason}");
    let mut later = loaded.pipelines[0].clone();
    later.context.insert("planet/mars".into(), String::new());
    let reason = again(&later).unwrap_err();
    assert_eq!(reason, "it refers to `planet/mars`, which this version does not know");
}
