//! A store on a real cluster: each shard in a hash slot of its own, and the home in another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivateCluster;
use interlock_store::{
    Accepted, Archived, Change, Expect, Group, Key, Mark, Recalled, Record, Refusal, Role, Rows,
    Shard, Store as _, StoreError, Writer, block_on,
    record::{EventRecord, InboxRecord, OutboxRecord, SensorRecord, WatermarkRecord},
};
use interlock_store_conformance::{self as conformance, START, Subject, open_incident};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::SignedDuration;

use crate::cast::{LONG, redis_cli, wait_for_replica};

const SHARDS: u16 = 12;
/// Where what belongs to no shard is.
const HOME: &str = "{interlock}:about";

fn settings(cluster: &PrivateCluster) -> RedisSettings {
    RedisSettings { shards: SHARDS, ..RedisSettings::new(cluster.addresses().remove(0)) }
}

fn open(cluster: &PrivateCluster) -> RedisStore {
    RedisStore::open(&settings(cluster)).unwrap()
}

/// The key by which the server of a shard is found.
fn place(shard: Shard) -> String {
    format!("{{interlock:{}}}:about", shard.0)
}

fn shards() -> impl Iterator<Item = Shard> {
    (0..SHARDS).map(Shard)
}

/// A pipeline of a shard.
fn pipeline(shard: Shard) -> PipelineId {
    let names = (0..).map(|number| PipelineId::parse(&format!("p-{number}")).unwrap());
    names.into_iter().find(|name| Shard::of(name, SHARDS) == shard).unwrap()
}

fn acquire(store: &RedisStore, shard: Shard, ttl: SignedDuration) -> Writer {
    let holder = format!("{store:p}");
    block_on(store.acquire(Role::Engine, shard, &holder, ttl)).unwrap().unwrap().writer
}

fn commit(
    store: &RedisStore,
    (writer, pipeline): (Writer, PipelineId),
    changes: Vec<Change>,
) -> Result<Result<Accepted, Refusal>, StoreError> {
    Ok(block_on(store.commit(vec![Group { pipeline, writer, changes }]))?.remove(0))
}

fn told(message: &str) -> Change {
    let record = EventRecord {
        kind: "TOLD".into(),
        at: START,
        slot: None,
        run_id: None,
        message: message.into(),
        details: [].into(),
    };
    Change::Append(record.into())
}

fn watermark(expect: Expect) -> Change {
    let key = Key::Watermark(ScheduleId::any("daily").unwrap());
    Change::Put(key, expect, Record::Watermark(WatermarkRecord { at: START }))
}

/// A fact of no pipeline.
fn fact() -> Change {
    let record = SensorRecord { value: 1.into(), at: START, received_at: START, unheeded: false };
    Change::Put(Key::Sensor("fact".to_owned()), Expect::Any, Record::Sensor(record.into()))
}

/// Tells something in a shard; the number of the event.
fn tell(store: &RedisStore, writer: Writer, message: &str) -> u64 {
    let place = (writer, pipeline(writer.shard));
    commit(store, place, vec![told(message)]).unwrap().unwrap().last_event
}

fn messages(store: &RedisStore, after: u64) -> Vec<String> {
    let page = block_on(store.events(None, after, 1_000)).unwrap();
    assert!(page.items.is_sorted_by(|one, next| one.number < next.number), "{page:?}");
    page.items.into_iter().map(|event| event.record.message.clone()).collect()
}

/// Asks again until the server that has the place answers: another one has to take over, or it has to come back.
#[expect(clippy::disallowed_methods, reason = "real servers need real time to take over")]
fn once_served<T>(cluster: &PrivateCluster, ask: impl Fn() -> Result<T, StoreError>) -> T {
    let began = Instant::now();
    loop {
        let error = match ask() {
            Ok(done) => return done,
            Err(error) => error,
        };
        assert!(error.is_retryable, "{error}");
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "waited a minute for a server of the cluster to serve the request; the store said last: {error}\n\
             the servers say:\n{}",
            cluster.describe()
        );
    }
}

/// The servers of all shards.
fn servers(cluster: &PrivateCluster) -> BTreeMap<usize, Vec<Shard>> {
    let mut servers: BTreeMap<usize, Vec<Shard>> = BTreeMap::new();
    for shard in shards() {
        servers.entry(cluster.owner_of(&place(shard))).or_default().push(shard);
    }
    servers
}

fn list(shards: &[Shard]) -> String {
    shards.iter().map(|shard| shard.0.to_string()).collect::<Vec<_>>().join(", ")
}

/// Shards of one server that has not the home, and one shard of another server.
fn apart_from_home(cluster: &PrivateCluster) -> (usize, Vec<Shard>, Shard) {
    let (home, servers) = (cluster.owner_of(HOME), servers(cluster));
    let (number, own) = servers.iter().find(|(number, _)| **number != home).unwrap();
    let (_, others) = servers.iter().find(|(other, _)| *other != number).unwrap();
    (*number, own.clone(), others[0])
}

fn check(shards: u16) {
    let cluster = PrivateCluster::start();
    let (addresses, made) = (cluster.addresses(), AtomicUsize::new(0));
    conformance::check(|| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let addr = addresses[number % addresses.len()].clone();
        let key_prefix = format!("c-{number}");
        let settings = RedisSettings { key_prefix, shards, ..RedisSettings::new(addr) };
        let store = RedisStore::open(&settings).unwrap();
        Subject::new(Arc::new(store), |time| thread::sleep(time.unsigned_abs()))
    });
}

/// Each store has other slots, and is opened by the next server: two of three have to say who has it.
#[test]
fn the_contract_is_kept_on_a_cluster() {
    check(4);
}

#[test]
fn the_contract_is_kept_on_a_cluster_with_one_shard() {
    check(1);
}

#[test]
fn each_shard_is_in_a_slot_of_its_own_and_they_are_on_several_servers() {
    let cluster = PrivateCluster::start();
    let store = open(&cluster);
    for shard in shards() {
        let writer = acquire(&store, shard, LONG);
        let place = (writer, pipeline(shard));
        commit(&store, place, vec![watermark(Expect::Absent), told("x")]).unwrap().unwrap();
        commit(&store, (writer, PipelineId::system()), vec![fact()]).unwrap().unwrap();
        let letter = InboxRecord::Resume { catchup: None };
        block_on(store.post(&pipeline(shard), "letter", &letter)).unwrap();
    }
    let (mut slots, mut names, mut servers) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for addr in cluster.addresses() {
        for key in redis_cli(&addr, &["KEYS", "*"]).lines() {
            let (tag, name) = key.split_once("}:").unwrap();
            let slot = redis_cli(&addr, &["CLUSTER", "KEYSLOT", key]);
            assert_eq!(slots.entry(tag.to_owned()).or_insert_with(|| slot.clone()), &slot, "{key}");
            names.entry(tag.to_owned()).or_insert_with(BTreeSet::new).insert(name.to_owned());
            servers.insert(addr.clone());
        }
    }
    let tags: BTreeSet<String> = shards().map(|shard| format!("{{interlock:{}", shard.0)).collect();
    let found: BTreeSet<String> =
        slots.keys().filter(|tag| *tag != "{interlock").cloned().collect();
    assert_eq!(found, tags);
    assert_eq!(slots.values().collect::<BTreeSet<_>>().len(), tags.len() + 1, "{slots:?}");
    assert!(servers.len() > 1, "{servers:?}");
    for shard in shards() {
        let (own, name) = (&names[&format!("{{interlock:{}", shard.0)], pipeline(shard));
        for kept in ["watermark", "events", "letters"] {
            assert!(own.contains(&format!("{kept}:{name}")), "{own:?}");
        }
        for kept in ["feed", "about"] {
            assert!(own.contains(kept), "{own:?}");
        }
        for kept in ["lease:engine", "lock:engine", "inbox"] {
            assert!(own.contains(&format!("{kept}:{}", shard.0)), "{own:?}");
        }
    }
    let of_a_pipeline =
        |name: &&String| shards().any(|shard| name.ends_with(pipeline(shard).as_str()));
    assert_eq!(names["{interlock"].iter().find(of_a_pipeline), None, "that is not at home");
}

/// The server that has it dies; its replica takes over, and the store goes on without being opened again.
fn follow(key: &str, tag: &str) {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let writer = acquire(&store, Shard(0), LONG);
    let put =
        |expect| commit(&store, (writer, pipeline(Shard(0))), vec![watermark(expect), told("x")]);
    put(Expect::Absent).unwrap().unwrap();
    cluster.add_replica_of(key);
    put(Expect::Revision(1)).unwrap().unwrap();
    wait_for_replica(&cluster.addresses()[cluster.owner_of(key)], tag);
    cluster.kill_owner_of(key);
    cluster.let_replicas_take_over();
    once_served(&cluster, || put(Expect::Revision(2))).unwrap();
    assert_eq!(store.rollbacks(), 0, "nothing that was acknowledged is lost");
    assert_eq!(messages(&store, 0), ["x", "x", "x"]);
}

#[test]
fn a_shard_follows_its_slot_to_the_replica() {
    follow(&place(Shard(0)), "interlock:0");
}

#[test]
fn the_home_follows_its_slot_to_the_replica() {
    follow(HOME, "interlock");
}

/// Another machine got the address of a server that died, and the other servers still name it. Its Redis is not taken for a home
/// that has forgotten everything.
#[test]
fn a_redis_of_no_cluster_at_the_address_of_a_server_that_died_is_left_alone() {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (_, own, _) = apart_from_home(&cluster);
    let writer = acquire(&store, own[0], LONG);
    tell(&store, writer, "before");
    let home = cluster.owner_of(HOME);
    let [stranger, other] =
        [home, cluster.owner_of(&place(own[0]))].map(|number| cluster.addresses().remove(number));
    cluster.kill(home);
    cluster.start_stranger_in_place_of(home);
    let refused = commit(&store, (writer, pipeline(own[0])), vec![told("late")]);
    assert_eq!(redis_cli(&stranger, &["DBSIZE"]), "0", "{refused:?}");
    assert_eq!(store.rollbacks(), 0);
    let error = RedisStore::open(&RedisSettings::new(other)).unwrap_err();
    let errors = [refused.unwrap_err(), error];
    assert!(errors.iter().all(|error| error.is_retryable), "{errors:?}");
    let said = format!("Redis at {stranger} does not belong to the cluster");
    assert!(errors.iter().any(|error| error.message.contains(&said)), "{errors:?}");
}

/// Half of its keys are on another server: nothing is done by halves, and when all are there it goes on.
#[test]
fn a_shard_waits_while_its_slot_is_moved_and_goes_along() {
    let cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (_, own, there) = apart_from_home(&cluster);
    let (moved, kept) = (acquire(&store, own[0], LONG), acquire(&store, there, LONG));
    let name = pipeline(moved.shard);
    let put =
        |expect| commit(&store, (moved, name.clone()), vec![told("x"), watermark(expect), fact()]);
    put(Expect::Absent).unwrap().unwrap();
    let before = cluster.owner_of(&place(moved.shard));
    let moving = cluster.begin_to_move(&place(moved.shard));
    assert!(put(Expect::Revision(1)).unwrap_err().is_retryable);
    let warnings = open(&cluster).warnings().concat();
    assert!(warnings.contains("being moved"), "{warnings}");
    tell(&store, kept, "meanwhile");
    cluster.finish(&moving);
    assert_ne!(cluster.owner_of(&place(moved.shard)), before);
    put(Expect::Revision(1)).unwrap().unwrap();
    let number = Key::Watermark(ScheduleId::any("daily").unwrap());
    let rows = block_on(store.read(&name, &[number, Key::Sensor("fact".to_owned())])).unwrap();
    let revisions: Vec<u64> = rows.into_iter().map(|row| row.unwrap().revision).collect();
    assert_eq!(revisions, [2, 2], "each was written twice");
    assert_eq!(messages(&store, 0), ["x", "meanwhile", "x"]);
    assert_eq!(store.rollbacks(), 0);
}

#[test]
fn other_shards_go_on_while_a_server_is_away_and_its_own_come_back_with_it() {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (number, away, there) = apart_from_home(&cluster);
    let (lost, kept) = (acquire(&store, away[0], LONG), acquire(&store, there, LONG));
    tell(&store, lost, "before");
    cluster.kill(number);
    let number_before = tell(&store, kept, "meanwhile");
    commit(&store, (kept, PipelineId::system()), vec![fact(), told("of nobody")]).unwrap().unwrap();
    let events = block_on(store.events(Some(&pipeline(there)), 0, 10)).unwrap().items;
    assert_eq!(events.iter().map(|event| event.number).collect::<Vec<_>>(), [number_before]);
    let refused = commit(&store, (lost, pipeline(away[0])), vec![told("lost")]).unwrap_err();
    assert!(refused.is_retryable, "{refused}");
    // Whoever comes meanwhile is told, and can do with the others what there is to do.
    let late =
        RedisStore::open(&RedisSettings::new(cluster.addresses().remove(cluster.owner_of(HOME))))
            .unwrap();
    assert!(
        late.warnings().concat().contains(&format!("shards {} of 12 cannot be", list(&away))),
        "{:?}",
        late.warnings()
    );
    // It is away, and not in danger of losing anything.
    let error = block_on(late.cautions()).unwrap_err();
    assert!(error.is_retryable && error.message.contains(&list(&away)), "{error}");
    let letter = InboxRecord::Resume { catchup: None };
    block_on(late.post(&pipeline(there), "letter", &letter)).unwrap();
    assert_eq!(block_on(late.recall(block_on(late.mark()).unwrap())).unwrap(), Recalled::Kept);
    // Who reads everything cannot be told less than everything.
    assert!(block_on(store.events(None, 0, 10)).unwrap_err().is_retryable);
    cluster.start_again(number);
    tell(&store, lost, "after");
    assert_eq!(block_on(late.cautions()).unwrap(), [""; 0]);
    let home = cluster.addresses().remove(cluster.owner_of(HOME));
    redis_cli(&home, &["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    let said = open(&cluster).warnings().to_vec();
    assert!(
        matches!(&said[..], [one] if one.contains(&home) && one.contains("full-coverage")),
        "{said:?}"
    );
    assert_eq!(messages(&store, 0), ["before", "meanwhile", "of nobody", "after"]);
    assert_eq!(store.rollbacks(), 0);
}

/// An alert that has not been sent.
fn alert() -> Change {
    let record = OutboxRecord {
        channel: String::new(),
        alert: Arc::new("told".into()),
        tries: 0,
        not_before: START,
        claimed_until: None,
        last_error: None,
        dead: false,
        after: None,
        held: None,
    };
    Change::Put(Key::Outbox("alert".to_owned()), Expect::Absent, Record::Outbox(record.into()))
}

/// A person who looks need not wait for a server that is away, and is not given a part for the whole.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a person waits is what is measured")]
fn who_looks_while_a_server_is_away_sees_the_rest_and_hears_what_is_missing() {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (number, away, there) = apart_from_home(&cluster);
    let addresses = cluster.addresses();
    let looking = RedisSettings::new(addresses[cluster.owner_of(HOME)].clone());
    for shard in [away[0], there] {
        let writer = acquire(&store, shard, LONG);
        let changes = vec![told("before"), incident(Expect::Absent), alert()];
        commit(&store, (writer, pipeline(shard)), changes).unwrap().unwrap();
    }
    let whole = RedisStore::look(&looking).unwrap().unwrap();
    assert_eq!(whole.left_out(), []);
    assert_eq!(block_on(whole.incidents(None, 10)).unwrap().items.len(), 2);
    cluster.kill(number);

    let seen = RedisStore::look(&looking).unwrap().unwrap();
    let [left_out] = seen.left_out() else { panic!("{:?}", seen.left_out()) };
    assert_eq!(left_out.shards, away);
    assert!(left_out.why.contains(&addresses[number]), "{}", left_out.why);
    let began = Instant::now();
    assert_eq!(block_on(seen.incidents(None, 10)).unwrap().items.len(), 1);
    assert_eq!(messages(&seen, 0), ["before"]);
    for shard in shards() {
        let listed = block_on(seen.open_incidents(shard, None, 10)).unwrap().items.len();
        assert_eq!(listed, usize::from(shard == there), "{shard:?}");
    }
    let error = block_on(seen.sensors(&pipeline(away[0]))).unwrap_err();
    assert!(error.is_retryable && error.message.contains(&left_out.why), "{error}");
    // Who takes all of it elsewhere must not take a part for the whole.
    for which in [Rows::All, Rows::Answers] {
        assert!(block_on(seen.rows(which, "", 10)).unwrap_err().is_retryable);
    }
    assert!(block_on(seen.changes(0, 10)).unwrap_err().is_retryable);
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits: {:?}", began.elapsed());

    // Nobody else's alert waits for one that cannot be had.
    let claimed = block_on(seen.claim(10, LONG)).unwrap();
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    let found = RedisStore::find(&looking).unwrap().unwrap();
    let began = Instant::now();
    assert_eq!(block_on(found.claim(10, LONG)).unwrap(), []);
    // Who asks for everything waits no more for what could not be reached when it began.
    assert!(block_on(found.incidents(None, 10)).unwrap_err().is_retryable);
    assert_eq!(block_on(found.recall(block_on(found.mark()).unwrap())).unwrap(), Recalled::Kept);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    cluster.start_again(number);
    once_served(&cluster, || block_on(found.incidents(None, 10)));
}

/// A server dies with writes that its replica never got. Only those of whom something was lost have to begin anew.
#[test]
fn a_shard_that_has_forgotten_is_noticed_and_the_others_keep_their_terms() {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (_, own, there) = apart_from_home(&cluster);
    let lucky = own[1];
    let [lost, lucky, kept] = [own[0], lucky, there].map(|shard| acquire(&store, shard, LONG));
    block_on(store.archived(Some(Archived { events: 0, changes: 0 }))).unwrap();
    tell(&store, lost, "kept");
    tell(&store, lucky, "kept too");
    cluster.add_replica_of(&place(lost.shard));
    cluster.cut_off_replicas_of(&place(lost.shard));
    let highest = tell(&store, lost, "lost");
    let since = block_on(store.changes(0, 10)).unwrap().since.unwrap();
    cluster.kill_owner_of(&place(lost.shard));
    cluster.have_replicas_take_over();

    let name = pipeline(lost.shard);
    let refused =
        once_served(&cluster, || commit(&store, (lost, name.clone()), vec![told("late")]));
    assert!(
        matches!(refused, Err(Refusal::Term { current }) if current > lost.term),
        "{refused:?}"
    );
    assert_eq!(store.rollbacks(), 1);
    let refused = commit(&store, (lost, PipelineId::system()), vec![fact()]).unwrap();
    assert!(
        matches!(refused, Err(Refusal::Term { .. })),
        "its right is over at home too: {refused:?}"
    );
    for writer in [lucky, kept] {
        assert!(tell(&store, writer, "on") > highest);
        commit(&store, (writer, PipelineId::system()), vec![fact()]).unwrap().unwrap();
    }
    let system = Shard::of(&PipelineId::system(), SHARDS);
    let letters = block_on(store.inbox(system, 10)).unwrap().items;
    let [letter] = letters.as_slice() else { panic!("the next owner is told: {letters:?}") };
    let InboxRecord::Noticed { event, message, .. } = &letter.record else { panic!("{letter:?}") };
    assert_eq!(event, "STORE_ROLLBACK");
    assert!(
        message.contains(&format!("the terms of shard {}, and of each other", lost.shard.0)),
        "{message}"
    );
    assert!(
        block_on(store.changes(0, 10)).unwrap().since > Some(since),
        "an archive reads all again"
    );

    let next = acquire(&store, lost.shard, LONG);
    assert!(next.term > lost.term);
    assert!(tell(&store, next, "again") > highest, "a number is not given twice");
    assert_eq!(messages(&store, 0), ["kept", "kept too", "on", "on", "again"]);
    assert_eq!(store.rollbacks(), 1, "what was told once is over");
}

/// A server has several shards. People hear of one trouble, which names them; each that has lost something is recorded.
#[test]
fn shards_of_a_server_that_has_forgotten_are_one_trouble() {
    let mut cluster = PrivateCluster::start();
    let store = open(&cluster);
    let (_, own, _) = apart_from_home(&cluster);
    let lost = [own[0], own[1]].map(|shard| acquire(&store, shard, LONG));
    cluster.add_replica_of(&place(own[0]));
    cluster.cut_off_replicas_of(&place(own[0]));
    for writer in lost {
        tell(&store, writer, "lost");
    }
    cluster.kill_owner_of(&place(own[0]));
    cluster.have_replicas_take_over();
    for writer in lost {
        let name = pipeline(writer.shard);
        let refused =
            once_served(&cluster, || commit(&store, (writer, name.clone()), vec![told("late")]));
        assert!(matches!(refused, Err(Refusal::Term { .. })), "{refused:?}");
    }
    let system = Shard::of(&PipelineId::system(), SHARDS);
    let letters = block_on(store.inbox(system, 10)).unwrap().items;
    let follower = &cluster.addresses()[cluster.owner_of(&place(own[0]))];
    let named = format!("Redis at {follower}, on which shards {} of the store are,", list(&own));
    let mut ended = BTreeSet::new();
    for letter in letters {
        let InboxRecord::Noticed { thing, message, .. } = letter.record else {
            panic!("{letter:?}")
        };
        assert_eq!(thing, format!("Redis at {follower}"));
        assert!(message.starts_with(&named), "{message}");
        ended.insert(message);
    }
    assert_eq!(ended.len(), lost.len(), "each is told: {ended:?}");
}

/// Kills the server of a shard with writes that its replica never got, and drops the store that wrote them; what was last known of
/// that store. The replica has not taken over yet.
fn forgets(cluster: &mut PrivateCluster, shard: Shard) -> Mark {
    let store = open(cluster);
    let writer = acquire(&store, shard, SignedDuration::ZERO);
    tell(&store, writer, "kept");
    cluster.add_replica_of(&place(shard));
    cluster.cut_off_replicas_of(&place(shard));
    tell(&store, writer, "lost");
    tell(&store, writer, "lost too");
    cluster.kill_owner_of(&place(shard));
    block_on(store.mark()).unwrap()
}

/// A store that is opened before the replica takes over does not wait for it, and notices the loss when it first writes there.
#[test]
fn a_shard_that_has_forgotten_is_noticed_by_who_was_there_before_its_replica_followed() {
    let mut cluster = PrivateCluster::start();
    let (_, own, _) = apart_from_home(&cluster);
    let mark = forgets(&mut cluster, own[0]);
    let store = open(&cluster);
    let recalled = block_on(store.recall(mark)).unwrap();
    assert_ne!(recalled, Recalled::Forgotten, "no server can have told it yet");
    cluster.let_replicas_take_over();
    let acquire = || block_on(store.acquire(Role::Engine, own[0], "late", LONG));
    let writer = once_served(&cluster, acquire).unwrap().writer;
    let written = commit(&store, (writer, pipeline(own[0])), vec![told("again")]).unwrap();
    assert!(matches!(written, Err(Refusal::Term { .. })), "{written:?}");
    assert_eq!(store.rollbacks(), 1);
}

/// Whoever wrote it is gone too: the home remembers what the shard has written.
#[test]
fn a_shard_that_has_forgotten_is_noticed_by_who_comes_later() {
    let mut cluster = PrivateCluster::start();
    let (_, own, _) = apart_from_home(&cluster);
    let mark = forgets(&mut cluster, own[0]);
    cluster.have_replicas_take_over();
    let store = once_served(&cluster, || {
        let store = open(&cluster);
        // Cautions are not told of while somebody is away.
        block_on(store.cautions()).map(|_| store)
    });
    assert_eq!(block_on(store.recall(mark)).unwrap(), Recalled::Forgotten);
    assert_eq!(block_on(store.recall(mark)).unwrap(), Recalled::Kept, "it was told");
    assert_eq!(store.rollbacks(), 1);
    let writer = acquire(&store, own[0], LONG);
    assert!(tell(&store, writer, "again") > mark.number);
    assert_eq!(messages(&store, 0), ["kept", "again"]);
}

/// The home forgets numbers that shards have written: none is given twice, and who has read them misses nothing.
#[test]
fn a_home_that_has_forgotten_is_noticed() {
    let mut cluster = PrivateCluster::start();
    let (store, reader) = (open(&cluster), open(&cluster));
    let servers = servers(&cluster);
    let home = cluster.owner_of(HOME);
    let elsewhere: Vec<Shard> = servers
        .into_iter()
        .filter(|(number, _)| *number != home)
        .flat_map(|(_, own)| own)
        .collect();
    let [one, other] = [elsewhere[0], elsewhere[1]].map(|shard| acquire(&store, shard, LONG));
    tell(&store, one, "a");
    cluster.add_replica_of(HOME);
    cluster.cut_off_replicas_of(HOME);
    let highest = tell(&store, one, "b");
    assert_eq!(messages(&reader, 0), ["a", "b"]);
    cluster.kill_owner_of(HOME);
    cluster.have_replicas_take_over();
    let place = (other, pipeline(other.shard));
    let committed = once_served(&cluster, || commit(&store, place.clone(), vec![told("c")]));
    let number = committed.unwrap().last_event;
    assert!(number > highest, "{number} was given before");
    assert_eq!(messages(&reader, highest), ["c"]);
    assert_eq!(messages(&reader, 0), ["a", "b", "c"]);
    assert_eq!(store.rollbacks(), 1);
}

/// Whoever got numbers dies before it writes them: readers wait a moment, and then do without; the numbers are nobody's any more.
#[test]
fn numbers_that_nobody_writes_hold_up_nobody_for_long_and_are_never_written() {
    let mut cluster = PrivateCluster::start();
    let (store, reader) = (open(&cluster), open(&cluster));
    let (number, away, there) = apart_from_home(&cluster);
    let (lost, kept) = (acquire(&store, away[0], LONG), acquire(&store, there, LONG));
    let first = tell(&store, lost, "first");
    cluster.kill(number);
    commit(&store, (lost, pipeline(away[0])), vec![told("given up")]).unwrap_err();
    let home = &cluster.addresses()[cluster.owner_of(HOME)];
    let given = format!("given:{}", away[0].0);
    let given: u64 = redis_cli(home, &["HGET", "{interlock}:numbers", &given]).parse().unwrap();
    assert!(given > first, "it has got numbers");
    let next = tell(&store, kept, "next");
    assert!(next > given);
    cluster.start_again(number);
    assert_eq!(messages(&reader, 0), ["first", "next"]);
    let addr = &cluster.addresses()[number];
    let closed: u64 = redis_cli(addr, &["HGET", &place(away[0]), "event"]).parse().unwrap();
    assert!(closed >= given, "whoever has them after all is refused");
    let again = tell(&store, lost, "again");
    assert!(again > next);
    assert_eq!(messages(&reader, next), ["again"]);
}

/// Another one closes the shard while numbers for it are on their way: they are refused, and others are written.
#[test]
fn numbers_that_come_too_late_are_replaced() {
    let cluster = PrivateCluster::start();
    let (store, other) = (open(&cluster), open(&cluster));
    let shard = Shard(3);
    let writer = acquire(&store, shard, LONG);
    let watchdog =
        block_on(other.acquire(Role::Watchdog, shard, "dog", LONG)).unwrap().unwrap().writer;
    thread::scope(|scope| {
        for (store, writer) in [(&store, writer), (&other, watchdog)] {
            for _ in 0..4 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        tell(store, writer, "x");
                    }
                });
            }
        }
    });
    assert_eq!(messages(&store, 0).len(), 400);
    let own = block_on(store.events(Some(&pipeline(shard)), 0, 1_000)).unwrap().items;
    assert_eq!(own.len(), 400, "each once");
}

/// Who has read up to a number has missed nothing below it, whoever writes where meanwhile.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a writer that panicked would be waited for without end"
)]
fn a_reader_misses_nothing_while_all_shards_write() {
    const EACH: usize = 60;
    const ALL_WRITTEN_IN: Duration = Duration::from_mins(3);
    let cluster = PrivateCluster::start();
    let store = open(&cluster);
    let writers: Vec<Writer> = shards().map(|shard| acquire(&store, shard, LONG)).collect();
    let stores: Vec<RedisStore> = (0..3).map(|_| open(&cluster)).collect();
    block_on(store.archived(Some(Archived { events: 0, changes: 0 }))).unwrap();
    let is_over = AtomicUsize::new(0);
    let (seen, noted) = thread::scope(|scope| {
        for (store, own) in stores.iter().zip(writers.chunks(4)) {
            for writer in own {
                let is_over = &is_over;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let message = format!("{} {number}", writer.shard.0);
                        let expect = if number == 0 {
                            Expect::Absent
                        } else {
                            Expect::Revision(number as u64)
                        };
                        let place = (*writer, pipeline(writer.shard));
                        commit(store, place, vec![told(&message), incident(expect)])
                            .unwrap()
                            .unwrap();
                    }
                    is_over.fetch_add(1, Ordering::SeqCst);
                });
            }
        }
        let (mut seen, mut noted, mut after, mut changed) = (Vec::new(), 0, 0, 0);
        let began = Instant::now();
        loop {
            let done = is_over.load(Ordering::SeqCst);
            let was_over = done == writers.len();
            assert!(
                began.elapsed() < ALL_WRITTEN_IN,
                "waited {ALL_WRITTEN_IN:?} for {} writers: {done} are done, {} events and {noted} changes were read",
                writers.len(),
                seen.len()
            );
            let page = block_on(store.events(None, after, 50)).unwrap();
            after = page.items.last().map_or(after, |event| event.number);
            let changes = block_on(store.changes(changed, 50)).unwrap();
            changed = changes.items.last().map_or(changed, |row| row.number);
            noted += changes.items.len();
            let is_through = !page.more && !changes.more;
            seen.extend(page.items.into_iter().map(|event| event.record.message.clone()));
            if was_over && is_through {
                break (seen, noted);
            }
        }
    });
    let expected =
        shards().flat_map(|shard| (0..EACH).map(move |number| format!("{} {number}", shard.0)));
    let (seen_once, expected): (BTreeSet<String>, BTreeSet<String>) =
        (seen.iter().cloned().collect(), expected.collect());
    let missed: Vec<_> = expected.difference(&seen_once).collect();
    assert_eq!((missed, seen.len()), (vec![], expected.len()));
    assert_eq!(noted, expected.len(), "changes too");
}

fn incident(expect: Expect) -> Change {
    let record = open_incident(START);
    Change::Put(Key::Incident("one".to_owned()), expect, Record::Incident(record.into()))
}

/// What is of no pipeline is written by the owners of all shards, and by nobody whose term is over.
#[test]
fn system_is_fenced_by_the_copies_of_leases() {
    let cluster = PrivateCluster::start();
    let (one, other) = (open(&cluster), open(&cluster));
    let shard = Shard(5);
    let old = acquire(&one, shard, SignedDuration::ZERO);
    let write =
        |store: &RedisStore, writer| commit(store, (writer, PipelineId::system()), vec![fact()]);
    write(&one, old).unwrap().unwrap();
    let new = acquire(&other, shard, LONG);
    assert_eq!(write(&one, old).unwrap(), Err(Refusal::Term { current: new.term }));
    write(&other, new).unwrap().unwrap();
    let renewed = block_on(other.renew(new, LONG)).unwrap().unwrap();
    let roll = block_on(one.roll()).unwrap().unwrap();
    assert_eq!(roll.held[&(Role::Engine, shard)].1, renewed.expires);
    assert_eq!(block_on(one.renew(old, LONG)).unwrap(), None);
    block_on(other.release(new)).unwrap();
    let refused = write(&other, new).unwrap();
    assert!(matches!(refused, Err(Refusal::Term { .. })), "{refused:?}");
    assert!(block_on(one.roll()).unwrap().unwrap().held.is_empty());
}

#[test]
fn a_store_that_is_all_in_one_slot_is_refused() {
    let cluster = PrivateCluster::start();
    let owner = &cluster.addresses()[cluster.owner_of(HOME)];
    redis_cli(
        owner,
        &["HSET", HOME, "format", "1", "shards", "12", "identity", "00000000000000ab"],
    );
    let error = RedisStore::open(&settings(&cluster)).unwrap_err();
    assert!(error.message.contains("one hash slot") && !error.is_retryable, "{error}");
    assert_eq!(redis_cli(owner, &["HLEN", HOME]), "3", "nothing was changed");
}

#[test]
fn a_name_that_a_shard_of_another_store_has_is_refused() {
    let cluster = PrivateCluster::start();
    let settings = RedisSettings { key_prefix: "interlock:3".into(), ..settings(&cluster) };
    let error = RedisStore::open(&settings).unwrap_err();
    assert!(error.message.contains("shard 3") && !error.is_retryable, "{error}");
}
