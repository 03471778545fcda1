//! Whether everything is as it should be, as this instance sees it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Json, extract::State};
use interlock_answers::{
    ProcessHealth,
    model::doctor::{DoctorAnswer, DoctorFinding, FindingCode},
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{desk::refused, error::ApiError, surface::Surface};

/// For so long an answer is given again: however many ask, it is looked every few seconds.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// How long it may take to look.
const LOOK_IN: Duration = Duration::from_secs(8);

/// The last examination, and whose turn it is to make the next.
#[derive(Debug)]
pub(crate) struct Examination {
    turn: Arc<Semaphore>,
    last: Mutex<Option<(Instant, DoctorAnswer)>>,
}

impl Default for Examination {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), last: Mutex::default() }
    }
}

impl Examination {
    /// The last one, while it is new.
    fn last(&self) -> Option<DoctorAnswer> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = last.as_ref()?;
        (at.elapsed() < REMEMBERED_FOR).then(|| answer.clone())
    }

    fn remember(&self, answer: DoctorAnswer) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), answer));
    }
}

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(doctor))
}

/// Whether everything is as it should be, the worst first.
///
/// The instance that is asked looks, at its host and its process and at what the store says of all; `instance` says what only it could find.
/// An answer is given again for five seconds.
#[utoipa::path(get, path = "/api/v1/doctor", tag = "system", responses((status = 200, body = DoctorAnswer)))]
async fn doctor(State(surface): State<Arc<Surface>>) -> Result<Json<DoctorAnswer>, ApiError> {
    let host = surface.doctor.get().cloned().ok_or_else(ApiError::starting)?;
    let turn = Arc::clone(&surface.examination.turn).acquire_owned().await;
    if let Some(answer) = surface.examination.last() {
        return Ok(Json(answer));
    }
    let look = Arc::clone(&host.look);
    let looked = spawn_blocking(move || {
        let found = look();
        // Held until it has really ended: one that hangs is not begun again beside itself.
        drop(turn);
        found
    });
    let mut findings: Vec<_> = process(&surface).findings().to_vec();
    for finding in &mut findings {
        finding.instance = Some(host.instance.clone());
    }
    match timeout(LOOK_IN, looked).await {
        Ok(Ok(found)) => findings.extend(found),
        Ok(Err(_)) | Err(_) => findings.push(DoctorFinding::problem(
            FindingCode::Store,
            format!("the store or the disk did not answer within {} s", LOOK_IN.as_secs()),
            "Look whether the store's server and the disk of the state folder work.",
        )),
    }
    let now = surface.open_store()?.now().await.map_err(refused)?;
    let answer = DoctorAnswer { instance: Some(host.instance), ..DoctorAnswer::new(now, findings) };
    surface.examination.remember(answer.clone());
    Ok(Json(answer))
}

/// What this process says of its own work.
fn process(surface: &Surface) -> ProcessHealth {
    let standing = surface.loops.look(Instant::now());
    let (late, on_time): (Vec<_>, Vec<_>) = standing.iter().partition(|one| one.is_late());
    let names = |loops: Vec<&crate::loops::Standing>| -> Vec<String> {
        loops.into_iter().map(|one| one.name.to_owned()).collect()
    };
    let wellness = surface.wellness();
    ProcessHealth {
        loops: names(on_time),
        late_loops: names(late),
        complaints: wellness.complaints,
        beacons: wellness.beacons.len(),
        failing_beacons: wellness.beacons.iter().filter(|one| one.error.is_some()).count(),
    }
}
