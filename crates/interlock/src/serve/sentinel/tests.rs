//! The sentinel with real sockets, real files and a real store, and loops that really stand still.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    sync::Mutex,
};

use interlock_config::{SystemZones, server::Beacon};
use interlock_core::{outbound::Outbound, pipeline::Secret};
use interlock_store::record::InboxRecord;
use interlock_store::{Role, Shard, block_on};
use interlock_store_embedded::EmbeddedStore;
use interlock_trigger::web::Web;
use interlock_wait::BOUND;
use serde_json::Value;

use super::*;
use crate::serve::files::{Files, Since};

/// Nothing that is waited for takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Takes requests, and remembers what they said.
#[derive(Clone)]
struct Receiver {
    url: String,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/here", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&taken);
        thread::spawn(move || {
            // Bounded: no test waits for this thread; it ends with the test's process.
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(BOUND)).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
                });
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                sees.lock().unwrap().push(String::from_utf8(body).unwrap());
                let mut stream = stream;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        });
        Self { url, taken }
    }

    fn count(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    /// The types and states of the alerts that came.
    fn alerts(&self) -> Vec<(String, String)> {
        let taken = self.taken.lock().unwrap();
        let alerts = taken.iter().map(|body| serde_json::from_str::<Value>(body).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        alerts.map(|alert| (text(&alert["alertType"]), text(&alert["details"]["state"]))).collect()
    }
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    interlock_wait::wait_until(what, PATIENCE, holds);
}

struct House {
    dir: tempfile::TempDir,
    beacon: Receiver,
    hook: Receiver,
    surface: Arc<Surface>,
    unreached: Arc<Unreached>,
}

impl House {
    fn new() -> Self {
        let (dir, beacon, hook) = (tempfile::tempdir().unwrap(), Receiver::new(), Receiver::new());
        let config = format!("alerts: [{{type: webhook, name: hook, url: '{}'}}]\n", hook.url);
        fs::write(dir.path().join("interlock.yaml"), config).unwrap();
        let surface = Arc::new(Surface::new("test"));
        surface.enter(Phase::Serving);
        Self { dir, beacon, hook, surface, unreached: Arc::default() }
    }

    fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn post(&self, store: EmbeddedStore) -> Sentinel {
        let files = Files::new(self.folder(), self.folder(), Arc::new(SystemZones::new()));
        files.scan(&Since::LastScan(tokio::time::Instant::now()), &mut |_| true).unwrap();
        let (surface, folder) = (Arc::clone(&self.surface), self.folder().to_path_buf());
        let unreached = Arc::clone(&self.unreached);
        let url = Secret::new(self.beacon.url.clone());
        let around = move || {
            let web = Web::new(&Outbound::default()).unwrap();
            let interval = SignedDuration::from_millis(100);
            let beacons = Beacons::new(&[Beacon { url, interval }], web.clone());
            let spool = Spool::open(&folder, files, web, Arc::new(|_| Ok(())));
            let (store, vitals): (Arc<dyn Store>, _) = (Arc::new(store), Arc::default());
            let pulse = Pulse::default();
            Ok(Around { surface, store, vitals, beacons, spool, pulse, unreached })
        };
        Sentinel::start(around).unwrap()
    }

    fn writer(&self) -> EmbeddedStore {
        EmbeddedStore::open_daemon(self.folder(), Arc::new(clock::now)).unwrap()
    }
}

fn told(alert_type: &str, state: &str) -> (String, String) {
    (alert_type.to_owned(), state.to_owned())
}

#[test]
fn l5_beacons_are_called_while_every_loop_comes_round_and_not_a_moment_longer() {
    let house = House::new();
    let pulse = Pulse::default();
    house.surface.loops.register("watchdog", pulse.clone(), Duration::from_secs(1));
    let (gate, ours) = (Arc::new(Mutex::new(())), pulse);
    let through = Arc::downgrade(&gate);
    thread::spawn(move || {
        // Bounded: it ends when the test drops the gate.
        while let Some(gate) = through.upgrade() {
            drop(gate.lock().unwrap());
            ours.beat();
            thread::sleep(Duration::from_millis(5));
        }
    });
    let _sentinel = house.post(house.writer());
    wait_until("the beacon is called", || house.beacon.count() >= 3);
    assert_eq!(house.surface.wellness().complaints, [""; 0]);

    let held = gate.lock().unwrap();
    wait_until("somebody hears of it", || !house.hook.alerts().is_empty());
    assert_eq!(house.hook.alerts(), [told("loop_late", "open")]);
    let complaints = house.surface.wellness().complaints;
    assert!(
        complaints[0].starts_with("the loop `watchdog` has made no progress"),
        "{complaints:?}"
    );
    let silent = house.beacon.count();
    // What is tested is that nothing comes.
    thread::sleep(Duration::from_secs(2));
    assert!(house.beacon.count() <= silent + 1, "one call may have been on its way");

    drop(held);
    wait_until("they hear that it is over", || house.hook.alerts().len() == 2);
    assert_eq!(house.hook.alerts()[1], told("loop_late", "resolved"));
    let silent = house.beacon.count();
    wait_until("the beacon is called again", || house.beacon.count() > silent);
    wait_until("the spool is empty", || {
        fs::read_dir(house.folder().join("spool")).unwrap().count() == 0
    });
}

/// A store that only reads refuses every write, as one does whose disk failed.
#[test]
fn s13_a_store_that_takes_no_writes_is_told_without_it_and_the_beacons_are_silent() {
    let house = House::new();
    drop(house.writer());
    let reader = EmbeddedStore::open_reader(house.folder(), Arc::new(clock::now)).unwrap();
    let sentinel = house.post(reader);
    wait_until("somebody hears of it", || !house.hook.alerts().is_empty());
    assert_eq!(house.hook.alerts(), [told("store_unreachable", "open")]);
    assert_eq!(house.beacon.count(), 0);
    let kept = fs::read_to_string(house.folder().join("spool/store.json")).unwrap();
    assert!(kept.contains("STORE_UNREACHABLE"), "{kept}");
    // Once, however long it lasts.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(sentinel.last_words("the disk is full".to_owned()));
    assert_eq!(house.hook.alerts().len(), 1);
}

/// The question of the sentinel goes to one server, and that one answers.
#[test]
fn a_part_of_the_store_that_cannot_be_reached_is_told_and_is_no_loops_fault() {
    let house = House::new();
    let pulse = Pulse::default();
    house.surface.loops.register("watchdog", pulse.clone(), Duration::from_secs(1));
    let refused = StoreError::retryable("connection refused");
    house.unreached.failed(Role::Watchdog, Shard(0), &refused);
    let _sentinel = house.post(house.writer());
    wait_until("somebody hears of it", || !house.hook.alerts().is_empty());
    assert_eq!(house.hook.alerts(), [told("store_unreachable", "open")], "and of nothing else");
    assert_eq!(house.surface.wellness().complaints, ["the store: connection refused"]);
    assert_eq!(house.beacon.count(), 0);

    house.unreached.reached(Role::Watchdog, Shard(0));
    pulse.beat();
    wait_until("they hear that it is over", || house.hook.alerts().len() > 1);
    assert_eq!(house.hook.alerts()[1], told("store_unreachable", "resolved"));
    // Now it is one.
    wait_until("somebody hears of the loop", || house.hook.alerts().len() > 2);
    assert_eq!(house.hook.alerts()[2], told("loop_late", "open"));
}

#[test]
fn s13_what_a_process_could_not_tell_is_told_by_the_next_and_that_it_is_over() {
    let house = House::new();
    let spool = house.folder().join("spool");
    fs::create_dir(&spool).unwrap();
    let alert = r#"{"what": "store", "told": [], "alert": {"level": "error", "alertType": "store_unreachable",
        "pipelineId": "_system", "message": "STORE_UNREACHABLE: the disk is full",
        "details": {"state": "open", "incident": "store:1"}, "timestamp": "2026-02-24T10:00:00Z"}}"#;
    fs::write(spool.join("store.json"), alert).unwrap();
    let store = house.writer();
    let _sentinel = house.post(store);
    wait_until("they hear of both", || house.hook.alerts().len() == 2);
    let both = [told("store_unreachable", "open"), told("store_unreachable", "resolved")];
    assert_eq!(house.hook.alerts(), both);
    wait_until("nothing is left", || fs::read_dir(&spool).unwrap().count() == 0);
    // And it is written down that it happened.
    let reader = EmbeddedStore::open_reader(house.folder(), Arc::new(clock::now)).unwrap();
    let inbox = || block_on(reader.inbox(Shard(0), 10)).unwrap().items;
    wait_until("it is recorded", || !inbox().is_empty());
    let InboxRecord::Noticed { event, .. } = &inbox()[0].record else { panic!("{:?}", inbox()) };
    assert_eq!(event, "STORE_WAS_UNREACHABLE");
}

#[test]
fn a_bark_that_was_ordered_and_does_not_come_is_complained_of() {
    let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
    let order = Some((SignedDuration::from_hours(1), at(0)));
    assert_eq!(bark_overdue(None, None, at(9_999)), None);
    assert_eq!(bark_overdue(order, None, at(70)), None);
    assert!(bark_overdue(order, None, at(71)).is_some());
    assert_eq!(bark_overdue(order, Some(at(60)), at(130)), None);
    assert!(bark_overdue(order, Some(at(60)), at(131)).is_some());
}
