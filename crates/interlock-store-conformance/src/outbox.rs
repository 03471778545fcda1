//! The outbox: each notification to one deliverer at a time, until it is settled (S13).

use std::sync::Arc;

use jiff::SignedDuration;

use super::{
    Subject,
    drive::all,
    promises,
    sample::{LONG, PAST_SHORT, SHORT, orders, outbox, outbox_key, pipeline},
    subject::take,
};
use interlock_store::{
    CHANGES_MAX, Change, Expect, OutboxRow, Settlement,
    record::{OutboxRecord, Record},
};

promises!("outbox":
    a_claimed_row_is_handed_to_nobody_else,
    a_claim_shows_in_the_row,
    racing_claims_share_no_row,
    an_expired_claim_is_handed_out_again,
    a_row_is_not_handed_out_before_its_time,
    what_has_waited_longest_comes_first,
    a_dead_row_is_never_handed_out,
    a_delivered_row_is_gone,
    a_failed_row_comes_back_at_its_time,
    a_settled_row_is_no_longer_claimed,
    a_late_settlement_changes_nothing,
    a_slow_settlement_counts_until_somebody_else_claims,
    settling_a_deleted_row_does_not_bring_it_back,
    a_row_becomes_one_for_each_channel,
    a_row_becomes_itself_and_others,
    a_late_settlement_adds_nothing,
    a_name_that_is_taken_keeps_its_row,
    more_rows_than_a_group_holds_are_a_mistake,
    many_are_settled_at_once_each_by_itself,
    more_than_any_portion_are_settled_at_once,
    a_claim_that_is_kept_passes_to_what_a_row_becomes,
    a_kept_claim_expires_when_it_would_have,
    a_name_that_is_taken_is_not_claimed,
    dead_letters_are_listed_in_the_order_they_came,
    the_notifications_of_a_pipeline_are_listed_and_stay_as_they_are,
);

async fn claim(t: &Subject, limit: usize, ttl: SignedDuration) -> Vec<OutboxRow> {
    t.store.claim(limit, ttl).await.expect("claim answers")
}

async fn claim_one(t: &Subject, ttl: SignedDuration) -> OutboxRow {
    let mut rows = claim(t, 10, ttl).await;
    assert_eq!(rows.len(), 1, "one row may be tried: {rows:?}");
    rows.remove(0)
}

/// Settles a row as delivered, or as itself changed.
async fn settle(t: &Subject, row: &OutboxRow, outcome: Option<OutboxRecord>) {
    let itself = outcome.map(|record| (row.name.clone(), record));
    replace(t, row, itself.into_iter().collect()).await;
}

async fn replace(t: &Subject, row: &OutboxRow, becomes: Vec<(String, OutboxRecord)>) {
    t.store.settle(row, becomes).await.expect("settle answers");
}

/// Puts rows that may be tried at once.
async fn put(t: &Subject, names: &[&str]) {
    let now = t.now().await;
    let row = |name: &&str| (outbox_key(name), Record::Outbox(outbox(now).into()));
    t.create(&orders(), names.iter().map(row).collect()).await;
}

fn sorted(rows: &[OutboxRow]) -> Vec<&str> {
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    names
}

async fn stored(t: &Subject, name: &str) -> Option<OutboxRecord> {
    let row = t.row(&orders(), &outbox_key(name)).await?;
    let Record::Outbox(record) = row.record else { panic!("an outbox row holds {row:?}") };
    Some(Arc::unwrap_or_clone(record))
}

async fn a_claimed_row_is_handed_to_nobody_else(t: Subject) {
    put(&t, &["a", "b", "c"]).await;
    let first = claim(&t, 2, LONG).await;
    let second = claim(&t, 2, LONG).await;
    assert_eq!((first.len(), second.len()), (2, 1));
    let both = [first, second].concat();
    assert_eq!(sorted(&both), ["a", "b", "c"]);
    assert_eq!(claim(&t, 2, LONG).await, []);
    assert!(both.iter().all(|row| row.pipeline == orders()));
}

async fn a_claim_shows_in_the_row(t: Subject) {
    put(&t, &["a"]).await;
    let before = t.now().await;
    let row = claim_one(&t, LONG).await;
    assert!(row.record.claimed_until >= Some(before + LONG), "{row:?}");
    assert_eq!(stored(&t, "a").await.as_ref(), Some(&row.record));
    assert_eq!((row.revision, t.revision(&orders(), &outbox_key("a")).await), (2, 2));
}

async fn racing_claims_share_no_row(t: Subject) {
    for number in 0..5 {
        let name = pipeline(&format!("p-{number}"));
        let now = t.now().await;
        let row = |thing: i64| (outbox_key(&thing.to_string()), Record::Outbox(outbox(now).into()));
        t.create(&name, (0..8).map(row).collect()).await;
    }
    let claims = all((0..16).map(|_| claim(&t, 3, LONG)).collect()).await.concat();
    let mut places: Vec<_> = claims.iter().map(|row| (&row.pipeline, &row.name)).collect();
    places.sort();
    places.dedup();
    assert_eq!((claims.len(), places.len()), (40, 40), "each row once");
}

async fn an_expired_claim_is_handed_out_again(t: Subject) {
    put(&t, &["a"]).await;
    let first = claim_one(&t, SHORT).await;
    t.pass(PAST_SHORT);
    let second = claim_one(&t, LONG).await;
    assert_eq!(second.name, first.name);
    assert!(second.revision > first.revision);
}

async fn a_row_is_not_handed_out_before_its_time(t: Subject) {
    let soon = t.now().await + SHORT;
    t.create(&orders(), vec![(outbox_key("far"), Record::Outbox(outbox(soon + LONG).into()))])
        .await;
    assert_eq!(claim(&t, 10, LONG).await, []);
    t.create(&orders(), vec![(outbox_key("near"), Record::Outbox(outbox(soon).into()))]).await;
    t.pass(PAST_SHORT);
    assert_eq!(claim_one(&t, LONG).await.name, "near");
}

async fn what_has_waited_longest_comes_first(t: Subject) {
    let now = t.now().await;
    for (name, minutes) in [("b", 2), ("c", 3), ("a", 1)] {
        let not_before = now - SignedDuration::from_mins(minutes);
        t.create(
            &pipeline(&format!("p-{name}")),
            vec![(outbox_key(name), Record::Outbox(outbox(not_before).into()))],
        )
        .await;
    }
    for name in ["c", "b", "a"] {
        let rows = claim(&t, 1, LONG).await;
        assert_eq!(sorted(&rows), [name]);
    }
}

async fn a_dead_row_is_never_handed_out(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    let dead = OutboxRecord { dead: true, last_error: Some("410".into()), ..row.record.clone() };
    settle(&t, &row, Some(dead)).await;
    assert_eq!(claim(&t, 10, LONG).await, []);
    let found = stored(&t, "a").await.expect("a dead letter stays visible");
    assert_eq!((found.dead, found.last_error.as_deref()), (true, Some("410")));
}

async fn a_delivered_row_is_gone(t: Subject) {
    put(&t, &["a", "b"]).await;
    for row in claim(&t, 10, LONG).await.iter().filter(|row| row.name == "a") {
        settle(&t, row, None).await;
        settle(&t, row, None).await;
    }
    assert_eq!(stored(&t, "a").await, None);
    assert!(stored(&t, "b").await.is_some());
}

async fn a_failed_row_comes_back_at_its_time(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    let not_before = t.now().await + SHORT;
    let again = OutboxRecord { tries: 1, not_before, ..row.record.clone() };
    settle(&t, &row, Some(again)).await;
    t.pass(PAST_SHORT);
    let next = claim_one(&t, LONG).await;
    assert_eq!((next.record.tries, next.revision), (1, 4));
}

async fn a_settled_row_is_no_longer_claimed(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    settle(&t, &row, Some(row.record.clone())).await;
    assert_eq!(stored(&t, "a").await.map(|record| record.claimed_until), Some(None));
    assert_eq!(claim_one(&t, LONG).await.revision, 4);
}

async fn a_late_settlement_changes_nothing(t: Subject) {
    put(&t, &["a"]).await;
    let slow = claim_one(&t, SHORT).await;
    t.pass(PAST_SHORT);
    let quick = claim_one(&t, LONG).await;
    settle(&t, &slow, None).await;
    settle(&t, &slow, Some(OutboxRecord { dead: true, ..slow.record.clone() })).await;
    assert_eq!(stored(&t, "a").await, Some(quick.record.clone()));
    settle(&t, &quick, None).await;
    assert_eq!(stored(&t, "a").await, None);
}

async fn a_slow_settlement_counts_until_somebody_else_claims(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, SHORT).await;
    t.pass(PAST_SHORT);
    settle(&t, &row, None).await;
    assert_eq!(stored(&t, "a").await, None);
}

async fn settling_a_deleted_row_does_not_bring_it_back(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    t.write(&orders(), vec![Change::Delete(outbox_key("a"), Expect::Any)]).await;
    settle(&t, &row, Some(row.record.clone())).await;
    assert_eq!(stored(&t, "a").await, None);
}

fn on(channel: &str, row: &OutboxRow) -> (String, OutboxRecord) {
    let record = OutboxRecord { channel: channel.into(), ..row.record.clone() };
    (format!("{}@{channel}", row.name), record)
}

async fn a_row_becomes_one_for_each_channel(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    replace(&t, &row, vec![on("mail", &row), on("chat", &row)]).await;
    assert_eq!(stored(&t, "a").await, None);
    let rows = claim(&t, 10, LONG).await;
    assert_eq!(sorted(&rows), ["a@chat", "a@mail"], "their claim is over");
    assert!(rows.iter().all(|row| row.revision == 2), "created, then claimed: {rows:?}");
    assert_eq!(stored(&t, "a@mail").await.map(|record| record.channel), Some("mail".into()));
}

async fn a_row_becomes_itself_and_others(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    let dead = OutboxRecord { dead: true, ..row.record.clone() };
    replace(&t, &row, vec![(row.name.clone(), dead), on("chat", &row)]).await;
    assert_eq!(stored(&t, "a").await.map(|record| record.dead), Some(true));
    assert_eq!(t.revision(&orders(), &outbox_key("a")).await, 3);
    assert_eq!(claim_one(&t, LONG).await.name, "a@chat");
}

async fn a_late_settlement_adds_nothing(t: Subject) {
    put(&t, &["a"]).await;
    let slow = claim_one(&t, SHORT).await;
    t.pass(PAST_SHORT);
    let _quick = claim_one(&t, LONG).await;
    replace(&t, &slow, vec![on("chat", &slow)]).await;
    assert_eq!(stored(&t, "a@chat").await, None);
    assert!(stored(&t, "a").await.is_some());
}

async fn a_name_that_is_taken_keeps_its_row(t: Subject) {
    put(&t, &["a", "a@chat"]).await;
    let rows = claim(&t, 10, LONG).await;
    let row = rows.iter().find(|row| row.name == "a").expect("it may be tried");
    let before = stored(&t, "a@chat").await;
    replace(&t, row, vec![on("chat", row)]).await;
    assert_eq!(stored(&t, "a").await, None);
    assert_eq!(stored(&t, "a@chat").await, before);
}

async fn more_rows_than_a_group_holds_are_a_mistake(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    let many: Vec<_> = (0..=CHANGES_MAX).map(|number| on(&number.to_string(), &row)).collect();
    let error = t.store.settle(&row, many.clone()).await.expect_err("too many");
    assert!(!error.is_retryable);
    assert!(stored(&t, "a").await.is_some(), "nothing was lost");
    replace(&t, &row, many.into_iter().skip(1).collect()).await;
    assert_eq!(claim(&t, 100, LONG).await.len(), CHANGES_MAX);
}

async fn settle_many(t: &Subject, settlements: Vec<Settlement>) -> Vec<Vec<OutboxRow>> {
    let outcomes = t.store.settle_many(settlements).await.expect("settle_many answers");
    outcomes.into_iter().map(|outcome| outcome.expect("each is settled")).collect()
}

async fn many_are_settled_at_once_each_by_itself(t: Subject) {
    put(&t, &["late", "again", "gone", "told"]).await;
    let other = pipeline("other");
    let now = t.now().await;
    t.create(&other, vec![(outbox_key("gone"), Record::Outbox(outbox(now).into()))]).await;
    let rows = claim(&t, 10, LONG).await;
    let find = |name: &str| {
        let row = rows.iter().find(|row| row.name == name && row.pipeline == orders());
        row.expect("it may be tried").clone()
    };
    let theirs = rows.iter().find(|row| row.pipeline == other).expect("it may be tried");
    let (late, again, gone, told) = (find("late"), find("again"), find("gone"), find("told"));
    let dead = OutboxRecord { dead: true, ..again.record.clone() };
    let outcomes = settle_many(
        &t,
        vec![
            Settlement::new(OutboxRow { revision: 1, ..late.clone() }, vec![]),
            Settlement::new(again.clone(), vec![(again.name.clone(), dead)]),
            Settlement::new(gone.clone(), vec![]),
            // The second is late: the first has changed the row.
            Settlement::new(gone.clone(), vec![on("mail", &gone)]),
            Settlement::new(told.clone(), vec![on("mail", &told), on("chat", &told)]),
            Settlement::new(theirs.clone(), vec![]),
        ],
    )
    .await;
    assert_eq!(outcomes, vec![Vec::<OutboxRow>::new(); 6], "no claim was to be kept");
    assert_eq!(stored(&t, "late").await, Some(late.record));
    assert_eq!(stored(&t, "again").await.map(|record| record.dead), Some(true));
    assert_eq!((stored(&t, "gone").await, stored(&t, "gone@mail").await), (None, None));
    assert_eq!(t.row(&other, &outbox_key("gone")).await, None);
    assert_eq!(sorted(&claim(&t, 10, LONG).await), ["told@chat", "told@mail"]);
}

async fn more_than_any_portion_are_settled_at_once(t: Subject) {
    let now = t.now().await;
    let row = |number: usize| (outbox_key(&number.to_string()), Record::Outbox(outbox(now).into()));
    for number in 0..24 {
        let name = pipeline(&format!("p-{number}"));
        t.create(&name, (0..CHANGES_MAX).map(row).collect()).await;
    }
    let rows = claim(&t, 2_000, LONG).await;
    assert_eq!(rows.len(), 24 * CHANGES_MAX);
    let kept = |row: &OutboxRow| Settlement {
        keeps_claim: true,
        ..Settlement::new(row.clone(), vec![on("mail", row)])
    };
    let outcomes = settle_many(&t, rows.iter().map(kept).collect()).await;
    for (row, outcome) in rows.iter().zip(&outcomes) {
        let [added] = outcome.as_slice() else { panic!("{row:?} became {outcome:?}") };
        assert_eq!((&added.pipeline, &added.name), (&row.pipeline, &format!("{}@mail", row.name)));
    }
    let gone = outcomes.concat().into_iter().map(|row| Settlement::new(row, vec![]));
    settle_many(&t, gone.collect()).await;
    t.pass(PAST_SHORT);
    for row in rows.iter().step_by(97) {
        for name in [row.name.clone(), format!("{}@mail", row.name)] {
            assert_eq!(t.row(&row.pipeline, &outbox_key(&name)).await, None);
        }
    }
}

async fn a_claim_that_is_kept_passes_to_what_a_row_becomes(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    let later = OutboxRecord { held: Some("later".into()), ..row.record.clone() };
    let becomes = vec![on("mail", &row), (row.name.clone(), later), on("chat", &row)];
    let settlement = Settlement { keeps_claim: true, ..Settlement::new(row.clone(), becomes) };
    let outcomes = settle_many(&t, vec![settlement]).await;
    let [added] = outcomes.as_slice() else { panic!("one outcome: {outcomes:?}") };
    assert_eq!(sorted(added), ["a@chat", "a@mail"], "itself is claimed no longer");
    for claimed in added {
        assert_eq!(claimed.record.claimed_until, row.record.claimed_until);
        assert_eq!(stored(&t, &claimed.name).await.as_ref(), Some(&claimed.record));
        assert_eq!(t.revision(&orders(), &outbox_key(&claimed.name)).await, claimed.revision);
    }
    assert_eq!(sorted(&claim(&t, 10, LONG).await), ["a"]);
    for claimed in added {
        settle(&t, claimed, None).await;
        assert_eq!(stored(&t, &claimed.name).await, None);
    }
}

async fn a_kept_claim_expires_when_it_would_have(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, SHORT).await;
    let settlement = Settlement::new(row.clone(), vec![on("mail", &row)]);
    let outcomes = settle_many(&t, vec![Settlement { keeps_claim: true, ..settlement }]).await;
    t.pass(PAST_SHORT);
    let again = claim_one(&t, LONG).await;
    assert_eq!((again.name.as_str(), again.revision), ("a@mail", 2));
    // Who was slow changes nothing.
    for row in outcomes.concat() {
        settle(&t, &row, None).await;
    }
    assert_eq!(stored(&t, "a@mail").await, Some(again.record));
}

async fn a_name_that_is_taken_is_not_claimed(t: Subject) {
    put(&t, &["a"]).await;
    let row = claim_one(&t, LONG).await;
    put(&t, &["a@chat"]).await;
    let becomes = vec![on("chat", &row), on("mail", &row)];
    let settlement = Settlement { keeps_claim: true, ..Settlement::new(row, becomes) };
    let outcomes = settle_many(&t, vec![settlement]).await;
    assert_eq!(sorted(&outcomes.concat()), ["a@mail"]);
    assert_eq!(claim_one(&t, LONG).await.name, "a@chat");
}

async fn dead_letters_are_listed_in_the_order_they_came(t: Subject) {
    put(&t, &["a", "b", "c"]).await;
    let now = t.now().await;
    for (row, minutes) in claim(&t, 10, LONG).await.iter().zip([3, 2, 1]) {
        let not_before = now - SignedDuration::from_mins(minutes);
        let dead = row.name != "b";
        settle(&t, row, Some(OutboxRecord { not_before, dead, ..row.record.clone() })).await;
    }
    let page = t.store.dead_letters(10).await.expect("dead_letters answers");
    let names: Vec<&str> = page.items.iter().map(|row| row.name.as_str()).collect();
    assert_eq!((names, page.more), (vec!["a", "c"], false));
    let page = t.store.dead_letters(1).await.expect("dead_letters answers");
    assert_eq!((page.items.len(), page.more), (1, true));
    assert_eq!(page.items.first().map(|row| (row.revision, row.record.dead)), Some((3, true)));
}

async fn the_notifications_of_a_pipeline_are_listed_and_stay_as_they_are(t: Subject) {
    put(&t, &["b", "c", "a", "e"]).await;
    let now = t.now().await;
    let dead = OutboxRecord { dead: true, ..outbox(now) };
    t.create(&orders(), vec![(outbox_key("d"), Record::Outbox(dead.into()))]).await;
    let elsewhere = Record::Outbox(outbox(now).into());
    t.create(&pipeline("stock"), vec![(outbox_key("a"), elsewhere)]).await;
    let claimed = claim(&t, 1, LONG).await;
    for limit in [1, 2, 5, 6] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = t.store.notifications(&orders(), after.as_deref(), limit).await;
            let page = page.expect("notifications answers");
            let more = page.more;
            take(&mut found, page, limit);
            after = found.last().map(|row: &OutboxRow| row.name.clone());
            if !more {
                break;
            }
        }
        let names: Vec<&str> = found.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"], "pages of {limit}");
        for row in &found {
            assert_eq!(stored(&t, &row.name).await.as_ref(), Some(&row.record));
            assert_eq!(t.revision(&orders(), &outbox_key(&row.name)).await, row.revision);
        }
        assert!(found.iter().any(|row| row.record.dead));
        let is_claimed = |row: &&OutboxRow| row.record.claimed_until.is_some();
        let of_orders = claimed.iter().filter(|row| row.pipeline == orders()).count();
        assert_eq!(found.iter().filter(is_claimed).count(), of_orders, "to look claims none");
    }
    let none = t.store.notifications(&pipeline("nobody"), None, 5).await.expect("it answers");
    assert_eq!((none.items, none.more), (vec![], false));
}
