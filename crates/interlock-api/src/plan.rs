//! Plans: what would happen, before anything does, with an `ETag` that the act is asked for under.

mod backfill;
mod catchup;
mod difference;
mod resume;
mod silence;

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json,
    extract::FromRequestParts,
    http::{
        header::{ETAG, HeaderName, IF_MATCH},
        request::Parts,
    },
};
use interlock_answers::ErrorCode;
use serde::Serialize;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;

use self::difference::Decides;
pub(crate) use self::difference::ShownPlans;
use crate::{error::ApiError, surface::Surface};

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .merge(backfill::routes())
        .merge(catchup::routes())
        .merge(resume::routes())
        .merge(silence::routes())
}

/// A plan as it is answered.
type PlanResponse<T> = ([(HeaderName, String); 1], Json<T>);

/// A plan under its hash, which may be the one that is meant later.
fn tagged<T: Decides>(surface: &Surface, hash: &str, plan: T) -> PlanResponse<T> {
    surface.shown_plans.remember(hash, plan.decisions());
    ([(ETAG, etag(hash))], Json(plan))
}

/// Which plan an act is meant to carry out, if the caller has looked at one.
#[derive(Debug)]
pub(crate) struct ExpectedPlan(Option<String>);

impl<S: Sync> FromRequestParts<S> for ExpectedPlan {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let expected = parts.headers.get(IF_MATCH);
        Ok(Self(expected.map(|value| value.to_str().unwrap_or_default().to_owned())))
    }
}

impl ExpectedPlan {
    /// Whether a plan was looked at.
    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses, with the plan as it is now and what differs, when that is not the one that was looked at.
    pub(crate) fn check<T: Serialize + Decides>(
        &self,
        shown: &ShownPlans,
        hash: &str,
        plan: &T,
    ) -> Result<(), ApiError> {
        let etag = etag(hash);
        let Some(expected) = &self.0 else { return Ok(()) };
        let tags = || expected.split(',').map(str::trim);
        if tags().any(|one| one == "*" || one == etag) {
            return Ok(());
        }
        let decisions = plan.decisions();
        let differs = shown.differences(tags().map(|tag| tag.trim_matches('"')), &decisions);
        let more = differs.as_ref().is_some_and(|(_, more)| *more);
        let differs = differs.map(|(told, _)| told);
        shown.remember(hash, decisions);
        let message = "the plan has changed";
        let hint = "Look at `plan`; send `etag` as `If-Match` to have that one carried out.";
        let error = ApiError::new(ErrorCode::PlanChanged, message, hint);
        let error = error.with("plan", json!(plan)).with("etag", etag);
        Err(error.with("differs", json!(differs)).with("differsMore", more))
    }
}

/// A plan's hash as a header has it.
pub(crate) fn etag(hash: &str) -> String {
    format!("\"{hash}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of one line.
    #[derive(Serialize)]
    struct Line(&'static str);

    impl Decides for Line {
        fn decisions(&self) -> difference::Decisions {
            [("s/1".to_owned(), self.0.to_owned())].into()
        }
    }

    #[test]
    fn a_plan_that_was_looked_at_is_the_one_that_is_carried_out() {
        let shown = ShownPlans::default();
        shown.remember("0b", Line("skip").decisions());
        let check = |expected: Option<&str>| {
            let expected = ExpectedPlan(expected.map(str::to_owned));
            let checked = expected.check(&shown, "0a", &Line("run"));
            checked.map_err(|error| (error.code, error.members))
        };
        for fits in [None, Some("\"0a\""), Some("*"), Some("\"0b\", \"0a\"")] {
            assert_eq!(check(fits), Ok(()), "{fits:?}");
        }
        for other in ["\"0b\"", "0a", ""] {
            let (code, members) = check(Some(other)).unwrap_err();
            assert_eq!(code, ErrorCode::PlanChanged);
            assert_eq!((&members["plan"], &members["etag"]), (&"run".into(), &"\"0a\"".into()));
            assert_eq!(members["differsMore"], false);
            let known = json!([{ "about": "s/1", "before": "skip", "now": "run" }]);
            let expected = match other {
                "\"0b\"" => known,
                "0a" => json!([]),
                _ => json!(null),
            };
            assert_eq!(members["differs"], expected, "{other}");
        }
    }
}
