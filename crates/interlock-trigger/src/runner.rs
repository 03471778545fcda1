//! The runner: a small process that starts jobs, outlives the daemon, and remembers.
//!
//! A daemon that dies must neither kill nor forget its users' jobs. So it does not start them
//! itself: it asks this process, one per directory, which it starts when none answers. The runner
//! leaves the daemon's session, keeps a journal (`journal`), and tells whoever subscribes. The
//! whole of it is one thread that owns everything and waits for everything in one place: for
//! daemons, for what they ask, for children and for the time.
//!
//! | who dies | what happens |
//! |---|---|
//! | the daemon | nothing; the next one subscribes and is told every end not acknowledged |
//! | the runner | jobs go on, their output too; the next runner finds them by pid and start time, watches them, and tells their end as lost, because an exit code is told to the parent alone |
//! | both | the same |
//! | the host | every run under way is lost: "the host was restarted" |
//!
//! In the directory: `runner.lock` (held by the one runner), `runner.sock`, `runner.log` (its own
//! complaints), `journal`, and `logs/<pipeline>/<run id>.log`.

mod adopted;
mod book;
pub(crate) mod connection;
mod desk;
mod execution;
mod host;
pub(crate) mod job;
pub(crate) mod journal;
mod log;
mod parked;
mod process;
mod progress;
pub(crate) mod protocol;
mod sweep;
mod time;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, TryLockError},
    io,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{WaitOptions, setsid, wait},
};

use self::{
    adopted::Adopted,
    book::{Intent, Record},
    connection::{CONNECTIONS_MAX, Connection},
    desk::{Child, Desk, complain},
    execution::{Execution, Progressed},
    job::Job,
    journal::Journal,
    parked::Parked,
    process::Exit,
    protocol::{Ask, Category, Line, News, PROTOCOL, Reply, Request, Told},
    time::Moment,
};
pub use self::{
    host::is_pid_one_namespace,
    log::log_path,
    sweep::{LogSweep, Step, Swept},
};

/// How often the logs are measured, and orphans waited for: nobody says when those are over.
const LOOK: Duration = Duration::from_secs(1);

/// How often children are looked at that are not watched.
const UNWATCHED_LOOK: Duration = Duration::from_millis(20);

/// After a connection could not be taken in.
const DOOR_PAUSE: Duration = Duration::from_millis(100);

/// Without a job and without a daemon it goes home after this long.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// What woke the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    /// Some child is over.
    Child,
    /// Somebody connects.
    Door,
    /// A connection has something to read, or room again.
    Connection(u64),
}

/// Runs the runner of a directory until it has nothing to do.
///
/// The binary calls this for its hidden command `runner DIR`; [`LocalTriggers`](crate::LocalTriggers)
/// starts that. A second runner of the same directory ends at once, with success.
pub fn main(dir: &Path) -> ExitCode {
    match run(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("the runner of {} cannot go on: {error}", dir.display()));
            ExitCode::FAILURE
        }
    }
}

/// Whether a runner of a directory takes connections; an error when there is one and it cannot be reached.
pub fn is_reachable(dir: &Path) -> io::Result<bool> {
    let reached =
        connection::Address::new(dir).and_then(|address| UnixStream::connect(address.path()));
    match reached {
        Ok(_) => Ok(true),
        // Never started, or gone and its socket left behind.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn run(dir: &Path) -> io::Result<()> {
    // Fails for a process that leads a group already, e.g. one started by hand from a shell.
    let _already_leads = setsid();
    let lock = File::create(dir.join("runner.lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // What jobs leave behind becomes our child and is waited for, whatever the host's init does.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Runner::open(dir)?.serve();
    Ok(())
}

/// The one owner of everything.
#[derive(Debug)]
struct Runner {
    desk: Desk,
    executions: BTreeMap<String, Execution>,
    adopted: Vec<Adopted>,
    /// When to look at which execution; at most one entry each.
    timers: BTreeSet<(Moment, String)>,
    /// Logs of runs that are over but left somebody behind who may still write.
    leftovers: Vec<(i32, PathBuf, u64)>,
    door: UnixListener,
    /// When the next connection may be taken in.
    door_at: Moment,
    connections_seen: u64,
    look_at: Moment,
    idle_since: Moment,
    /// What is to be made ready once everybody has heard what there is to hear.
    nexts: Vec<Job>,
}

impl Runner {
    fn open(dir: &Path) -> io::Result<Self> {
        let (now, wall) = (Moment::now(), time::wall());
        let found = Journal::open(dir, wall)?;
        let adopted =
            found.book.open().map(|entry| Adopted::new(entry, found.boot, now, wall)).collect();
        Ok(Self {
            desk: Desk {
                dir: dir.to_owned(),
                journal: found.journal,
                book: found.book,
                children: BTreeMap::new(),
                connections: BTreeMap::new(),
                spare: log::Spare::new(dir),
                parked: Parked::default(),
            },
            executions: BTreeMap::new(),
            adopted,
            timers: BTreeSet::new(),
            leftovers: Vec::new(),
            door: connection::listen(dir)?,
            door_at: now,
            connections_seen: 0,
            look_at: now,
            idle_since: now,
            nexts: Vec::new(),
        })
    }

    fn serve(&mut self) {
        loop {
            let now = Moment::now();
            self.on_time(now);
            if !self.is_idle() {
                self.idle_since = now;
            } else if self.idle_since.until(now) >= IDLE_MAX {
                return;
            }
            self.desk.flush();
            for job in std::mem::take(&mut self.nexts) {
                self.park(job);
            }
            if !self.executions.is_empty() {
                self.desk.spare.prepare();
            }
            let ready = self.wait();
            if ready.contains(&Ready::Child) {
                self.wait_for_all(Moment::now());
            }
            for ready in ready {
                match ready {
                    Ready::Child => {}
                    Ready::Door => self.let_in(),
                    Ready::Connection(connection) => self.hear(connection),
                }
            }
        }
    }

    /// Waits until something is to be done; the one place where the runner sleeps.
    fn wait(&self) -> Vec<Ready> {
        let now = Moment::now();
        let door =
            (self.door_at <= now).then(|| (Ready::Door, PollFd::new(&self.door, PollFlags::IN)));
        let connections = self.desk.connections.iter();
        let connections = connections.map(|(id, of)| (Ready::Connection(*id), of.interest()));
        let watches = self.desk.children.values().filter_map(|child| child.watch.as_ref());
        let watches = watches.map(|watch| (Ready::Child, PollFd::new(watch, PollFlags::IN)));
        let (who, mut fds): (Vec<_>, Vec<_>) =
            door.into_iter().chain(connections).chain(watches).unzip();
        let patience = Timespec::try_from(self.patience(now)).ok();
        // A signal that interrupts it is a reason to look around too.
        let _interrupted = poll(&mut fds, patience.as_ref());
        let ready = who.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(who, _)| who).collect()
    }

    fn is_idle(&self) -> bool {
        self.executions.is_empty() && self.adopted.is_empty() && self.desk.connections.is_empty()
    }

    fn patience(&self, now: Moment) -> Duration {
        let busy = !(self.executions.is_empty() && self.leftovers.is_empty());
        let look = if busy { now.until(self.look_at) } else { IDLE_MAX };
        let adopted = if self.adopted.is_empty() { IDLE_MAX } else { adopted::LOOK };
        let unwatched = if self.desk.is_all_watched() { IDLE_MAX } else { UNWATCHED_LOOK };
        let timer = self.timers.first().map(|(at, _)| *at);
        let door = Some(self.door_at).filter(|at| *at > now);
        let connections = self.desk.connections.values().filter_map(Connection::wake);
        let moments = connections
            .chain(timer)
            .chain(door)
            .chain(self.desk.parked.wake())
            .map(|at| now.until(at));
        moments.fold(look.min(adopted).min(unwatched), Ord::min)
    }

    /// Takes in who is at the door.
    fn let_in(&mut self) {
        let taken = self.door.accept().and_then(|(stream, _)| Connection::new(stream));
        match taken {
            Ok(_) if self.desk.connections.len() >= CONNECTIONS_MAX => {
                complain(format_args!("more than {CONNECTIONS_MAX} connections; one is refused"));
            }
            Ok(mut connection) => {
                connection.say(&Line::Hello { protocol: PROTOCOL, pid: std::process::id() });
                self.connections_seen += 1;
                self.desk.connections.insert(self.connections_seen, connection);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                complain(format_args!("a connection could not be accepted: {error}"));
                self.door_at = Moment::now().after(DOOR_PAUSE);
            }
        }
    }

    /// Answers what a daemon asks.
    fn hear(&mut self, connection: u64) {
        let heard = self.desk.connections.get_mut(&connection).map(Connection::read);
        for request in heard.unwrap_or_default() {
            match request {
                Ok(request) => self.answer(connection, request),
                Err(message) => self.say(connection, &Line::Malformed { message }),
            }
        }
    }

    fn answer(&mut self, connection: u64, request: Request) {
        let Request { id, ask } = request;
        let reply = match ask {
            Ask::Start(job) => return self.start(connection, id, *job),
            Ask::Prepare { job, after } => return self.prepare(*job, after),
            Ask::Cancel { run_id } => self.cancel(&run_id),
            Ask::LookUp { run_id } => Reply::Known(self.desk.known(&run_id)),
            Ask::List => {
                let run_ids = self.desk.book.open().map(|entry| entry.intent.run_id.clone());
                Reply::Runs { run_ids: run_ids.collect() }
            }
            // Nobody waits for an answer to these.
            Ask::Subscribe => return self.desk.subscribe(connection),
            Ask::Acknowledge { run_id } => return self.acknowledge(run_id),
        };
        self.reply(connection, id, reply);
    }

    fn reply(&mut self, connection: u64, id: u64, reply: Reply) {
        self.say(connection, &Line::Reply { id, reply });
    }

    fn say(&mut self, connection: u64, line: &Line) {
        if let Some(connection) = self.desk.connections.get_mut(&connection) {
            connection.say(line);
        }
    }

    /// Makes ready for a job that is yet to be asked for, at once or when the one before it is over.
    fn prepare(&mut self, job: Job, after: Option<String>) {
        if let Some(before) = after.and_then(|run_id| self.executions.get_mut(&run_id)) {
            before.next = Some(Box::new(job));
        } else {
            self.nexts.push(job);
        }
    }

    fn park(&mut self, job: Job) {
        let Desk { dir, book, spare, parked, .. } = &mut self.desk;
        if job.objection().is_none() && book.get(&job.run_id).is_none() {
            let log = log::log_path(dir, &job.pipeline, &job.run_id);
            parked.park(job, log, spare, Moment::now());
        }
    }

    /// Starts a job whose run id is new (S2). The intent is written first: from then on the run is
    /// known, whatever happens.
    fn start(&mut self, connection: u64, id: u64, job: Job) {
        if let Some(message) = job.objection() {
            let reply = Reply::Refused { message, category: Category::Permanent };
            return self.reply(connection, id, reply);
        }
        if let Some(entry) = self.desk.book.get(&job.run_id) {
            let ended = entry.ended.clone();
            self.reply(connection, id, Reply::Already);
            if let Some((at, end)) = ended {
                let news = News::Ended(end);
                self.desk.tell_told(Told { run_id: job.run_id, at, news });
            }
            return;
        }
        if let Err(error) = self.desk.note_first(Record::Intent(intent(&job))) {
            let message = format!("the runner's journal cannot be written: {error}");
            let reply = Reply::Refused { message, category: Category::Transient };
            return self.reply(connection, id, reply);
        }
        self.reply(connection, id, Reply::Done);
        let now = Moment::now();
        let run_id = job.run_id.clone();
        self.executions.insert(run_id.clone(), Execution::new(job, &self.desk, now));
        self.settle(&run_id, now);
    }

    fn cancel(&mut self, run_id: &str) -> Reply {
        let now = Moment::now();
        if let Some(execution) = self.executions.get_mut(run_id) {
            execution.cancel(now);
            self.settle(run_id, now);
        }
        if let Some(adopted) = self.adopted.iter_mut().find(|adopted| adopted.run_id() == run_id) {
            adopted.cancel(now);
        }
        Reply::Known(self.desk.known(run_id))
    }

    fn acknowledge(&mut self, run_id: String) {
        if self.desk.book.awaits_acknowledgement(&run_id) {
            self.desk.note(Record::Acknowledged { run_id });
            if let Err(error) = self.desk.journal.compact(&self.desk.book) {
                complain(format_args!("the journal cannot be written anew: {error}"));
            }
        }
    }

    /// Lets an execution go on, and forgets it when it is over.
    fn settle(&mut self, run_id: &str, now: Moment) {
        let Some(execution) = self.executions.get_mut(run_id) else { return };
        match execution.settle(&mut self.desk, now) {
            Progressed::Goes => {
                let wake = execution.wake();
                if execution.armed != wake {
                    let old = std::mem::replace(&mut execution.armed, wake);
                    self.disarm(old, run_id);
                    self.timers.extend(wake.map(|at| (at, run_id.to_owned())));
                }
            }
            Progressed::Over => {
                let Some(over) = self.executions.remove(run_id) else { return };
                self.disarm(over.armed, run_id);
                self.nexts.extend(over.next.map(|job| *job));
            }
        }
    }

    fn disarm(&mut self, armed: Option<Moment>, run_id: &str) {
        if let Some(at) = armed {
            self.timers.remove(&(at, run_id.to_owned()));
        }
    }

    fn on_time(&mut self, now: Moment) {
        let is_due =
            |timers: &BTreeSet<(Moment, String)>| timers.first().is_some_and(|t| t.0 <= now);
        if is_due(&self.timers) || self.look_at <= now || !self.desk.is_all_watched() {
            // What is left of a group may be waiting for us and for nobody else.
            self.wait_for_all(now);
        }
        while is_due(&self.timers) {
            let Some((_, run_id)) = self.timers.pop_first() else { break };
            if let Some(execution) = self.executions.get_mut(&run_id) {
                execution.armed = None;
                execution.on_time(now);
                self.settle(&run_id, now);
            }
        }
        let desk = &mut self.desk;
        self.adopted.retain_mut(|adopted| !adopted.on_time(desk, now));
        desk.parked.on_time(now);
        if self.look_at <= now {
            self.look_at = now.after(LOOK);
            self.cut_logs();
        }
    }

    fn cut_logs(&mut self) {
        let group_lives = |pid: i32| {
            rustix::process::Pid::from_raw(pid)
                .is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
        };
        self.leftovers.retain(|(pid, ..)| group_lives(*pid));
        let running = self.executions.values().map(Execution::log);
        let left = self.leftovers.iter().map(|(_, path, bytes_max)| (path, *bytes_max));
        for (path, bytes_max) in running.chain(left) {
            match log::keep_tail(path, bytes_max) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    complain(format_args!("the log {} cannot be cut: {error}", path.display()));
                }
                _ => {}
            }
        }
    }

    /// Waits for every child that is over. Only here: see `process`.
    fn wait_for_all(&mut self, now: Moment) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let Some(Child { run_id, .. }) = self.desk.children.remove(&pid) else { continue };
            if let Some(execution) = self.executions.get_mut(&run_id) {
                execution.exited(pid, Exit::of(status));
                let (path, bytes_max) = execution.log();
                let left = rustix::process::Pid::from_raw(pid)
                    .is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
                if left {
                    self.leftovers.push((pid, path.clone(), bytes_max));
                }
                self.settle(&run_id, now);
            }
        }
    }
}

fn intent(job: &Job) -> Intent {
    let at = time::wall();
    let timeout = job.timeout_ms.map(Duration::from_millis);
    Intent {
        run_id: job.run_id.clone(),
        pipeline: job.pipeline.clone(),
        at,
        deadline: timeout.and_then(|timeout| at.checked_add(timeout).ok()),
        grace_ms: job.grace_ms,
        log_bytes_max: job.log_bytes_max,
    }
}
