//! No page has a script, a style or a handler of its own, and nothing that htmx would run.

use std::{fs, path::Path};

use crate::canned::Canned;

/// What would need a hole in the policy, or runs text of a page.
const BANNED: [&str; 12] = [
    "style=",
    "<style",
    "onclick",
    "onload",
    "onerror",
    "onsubmit",
    "onchange",
    "hx-on",
    "js:",
    "javascript:",
    "hx-vals",
    "hx-trigger",
];

/// Words that leave open who does what.
const VAGUE: [&str; 4] = ["nobody", "somebody", "whoever", "cannot be had"];

#[test]
fn no_template_has_what_the_policy_forbids_or_leaves_open_who_does_what() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for banned in BANNED {
            assert!(!text.contains(banned), "{} has `{banned}`", path.display());
        }
        for vague in VAGUE {
            assert!(!text.to_lowercase().contains(vague), "{} says `{vague}`", path.display());
        }
        for script in text.split("<script").skip(1) {
            let inner = script.split_once('>').and_then(|(_, rest)| rest.split_once("</script>"));
            assert_eq!(
                inner.map(|(inner, _)| inner),
                Some(""),
                "a script of its own in {}",
                path.display()
            );
        }
        count += 1;
    }
    assert!(count > 10, "{count} templates were read");
}

#[test]
fn htmx_is_the_one_that_was_published() {
    // FNV-1a tells a change; `assets/README.md` has the sha256 and `cargo xtask tidy` reads no hashes.
    let bytes = include_bytes!("../../assets/htmx.min.js");
    assert_eq!(bytes.len(), 37_448);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!(hash, PUBLISHED, "{hash:#x}");
}

const PUBLISHED: u64 = 0xd56b_3711_83c0_fcda;

#[tokio::test]
async fn every_answer_says_what_a_page_may_do() {
    let canned = Canned::new();
    for path in ["/runs", "/nope", "/login", "/favicon.ico"] {
        let response = canned.answer(path).await;
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{path}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"));
    }
}

#[tokio::test]
async fn what_the_pages_are_dressed_in_is_kept_for_ever_under_a_name_that_changes_with_it() {
    let page = Canned::new().page("/login").await;
    let href = page.split('"').find(|text| text.starts_with("/assets/style-")).unwrap().to_owned();
    let style = Canned::new().answer(&href).await;
    assert_eq!(style.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
    assert_eq!(Canned::new().answer("/assets/style-0.css").await.status(), 404);
}

#[tokio::test]
async fn a_preference_is_kept_by_the_browser_and_leaves_the_address() {
    let response = Canned::new().answer("/runs?theme=dark&status=failed").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (303, &"/runs?status=failed".parse().unwrap())
    );
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("il_theme=dark; Path=/; SameSite=Lax"), "{cookie}");
}

#[tokio::test]
async fn who_must_log_in_is_led_there_and_back() {
    let canned =
        Canned::new().refusing("/api/v1/session", 401, "token_needed", "a token is needed");
    let response = canned.answer("/runs?status=failed").await;
    let place = response.headers()["location"].to_str().unwrap();
    assert_eq!((response.status().as_u16(), place), (303, "/login?next=/runs%3Fstatus%3Dfailed"));
}

#[tokio::test]
async fn a_message_is_text_whatever_is_in_it() {
    let evil = r#"<img src=x onerror="alert(1)">'&"#;
    let incident = serde_json::json!({
        "key": evil, "pipeline": "a-b", "state": "open", "level": "error", "kind": "JOB_FAILED", "message": evil,
        "details": {evil: evil}, "count": 1, "openedAt": "2026-10-25T08:00:00Z", "updatedAt": "2026-10-25T08:00:00Z",
        "acknowledged": {"at": "2026-10-25T08:00:00Z", "by": evil, "note": evil}, "resolved": null, "held": null,
    });
    let list = serde_json::json!({"items": [incident], "next": null, "scanned": 1});
    let page = Canned::new().with("/api/v1/incidents", list).page("/incidents").await;
    assert!(!page.contains("<img"), "{page}");
}
