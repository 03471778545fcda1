//! The daemon's end of the socket: one connection to the runner, kept up by a task.
//!
//! The task connects when somebody asks for something (or when an earlier daemon left a journal),
//! starts a runner if none answers, subscribes, and from then on reconnects by itself: a runner
//! that died has left jobs behind that only a new one can find.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs::OpenOptions,
    io,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::runner::{
    connection::Address,
    job::Job,
    protocol::{Ask, Line, PROTOCOL, Reply, Request},
};
use interlock_ports::trigger::Report;

/// How long a runner may take to answer after its start.
const LAUNCH_MAX: Duration = Duration::from_secs(10);

/// Between two attempts to connect to a runner that is just starting.
const LAUNCH_LOOK: Duration = Duration::from_millis(10);

/// Between two attempts to bring a lost runner back, growing.
const REJOIN_PAUSE_MIN: Duration = Duration::from_millis(100);
const REJOIN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long what nobody waits for may wait for something that has to be sent anyway: each message wakes the runner.
const SAY_PATIENCE: Duration = Duration::from_millis(5);

/// How many runners may die over one request.
const SENDS_MAX: u32 = 3;

/// Asks the runner; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    orders: UnboundedSender<Order>,
}

/// Why there was no answer.
#[derive(Debug)]
pub(crate) struct LinkFailure {
    pub(crate) message: String,
    /// The request had left; what came of it is not known.
    pub(crate) was_sent: bool,
}

#[derive(Debug)]
enum Order {
    /// Connect, whatever for.
    Join,
    /// Ask, and pass the answer on.
    Ask { ask: Ask, answer: oneshot::Sender<Result<Reply, LinkFailure>> },
    /// Say, and want no answer.
    Say(Ask),
}

impl Order {
    /// Whether nothing is lost if it is sent a little later, or never: an end that was not acknowledged is told again.
    fn can_wait(&self) -> bool {
        matches!(self, Self::Join | Self::Say(Ask::Acknowledge { .. }))
    }
}

impl Link {
    /// A link to the runner of a directory. Must be called inside a runtime.
    pub(crate) fn new(
        dir: PathBuf,
        runner: Vec<OsString>,
        reports: UnboundedSender<Report>,
    ) -> Self {
        let (orders, received) = unbounded_channel();
        let keeper = Keeper {
            dir,
            runner,
            reports,
            orders: received,
            queue: VecDeque::new(),
            waiting: BTreeMap::new(),
            next_id: 0,
        };
        tokio::spawn(keeper.keep());
        Self { orders }
    }

    /// Connects without asking anything.
    pub(crate) fn join(&self) {
        let _task_is_gone = self.orders.send(Order::Join);
    }

    /// Lets the runner forget a run.
    pub(crate) fn acknowledge(&self, run_id: &str) {
        let ask = Ask::Acknowledge { run_id: run_id.to_owned() };
        let _task_is_gone = self.orders.send(Order::Say(ask));
    }

    /// Says what is about to be started, or likely to be once another run has ended.
    pub(crate) fn prepare(&self, job: Job, after: Option<&str>) {
        let ask = Ask::Prepare { job: Box::new(job), after: after.map(str::to_owned) };
        let _task_is_gone = self.orders.send(Order::Say(ask));
    }

    /// The runs under way.
    pub(crate) async fn running(&self) -> Result<Vec<String>, LinkFailure> {
        match self.ask(Ask::List).await? {
            Reply::Runs { run_ids } => Ok(run_ids),
            odd @ (Reply::Done | Reply::Already | Reply::Refused { .. } | Reply::Known(_)) => {
                let message = format!("the runner gave an odd answer: {odd:?}");
                Err(LinkFailure { message, was_sent: true })
            }
        }
    }

    /// Asks for something. What was sent to a runner that died before it answered is sent to the
    /// next one: every request may be repeated, a start because the journal knows its run id (S2).
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Reply, LinkFailure> {
        let mut was_sent = false;
        for _ in 1..SENDS_MAX {
            match self.ask_once(ask.clone()).await {
                Err(failure) if failure.was_sent => was_sent = true,
                Err(failure) => return Err(LinkFailure { was_sent, ..failure }),
                answered => return answered,
            }
        }
        self.ask_once(ask).await.map_err(|failure| LinkFailure { was_sent: true, ..failure })
    }

    async fn ask_once(&self, ask: Ask) -> Result<Reply, LinkFailure> {
        let gone =
            || LinkFailure { message: "the runtime is going down".to_owned(), was_sent: true };
        let (answer, answered) = oneshot::channel();
        let Ok(()) = self.orders.send(Order::Ask { ask, answer }) else { return Err(gone()) };
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The task's own state.
struct Keeper {
    dir: PathBuf,
    runner: Vec<OsString>,
    reports: UnboundedSender<Report>,
    orders: UnboundedReceiver<Order>,
    /// Not yet sent.
    queue: VecDeque<Order>,
    /// Sent and not yet answered.
    waiting: BTreeMap<u64, oneshot::Sender<Result<Reply, LinkFailure>>>,
    next_id: u64,
}

struct Connection {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

/// Why a session ended.
enum SessionEnd {
    /// Nobody will ask any more.
    Closed,
    /// The runner is gone.
    Lost,
}

impl Keeper {
    async fn keep(mut self) {
        let Some(first) = self.orders.recv().await else { return };
        self.queue.push_back(first);
        let mut pause = REJOIN_PAUSE_MIN;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    pause = REJOIN_PAUSE_MIN;
                    if let SessionEnd::Closed = self.session(connection).await {
                        return;
                    }
                    self.fail_waiting();
                }
                Err(error) => {
                    self.fail_queue(&error);
                    let Ok(Some(order)) = timeout(pause, self.orders.recv()).await else {
                        if self.orders.is_closed() {
                            return;
                        }
                        pause = (pause * 2).min(REJOIN_PAUSE_MAX);
                        continue;
                    };
                    self.queue.push_back(order);
                }
            }
        }
    }

    /// Sends what is asked and passes on what is told, until either side is gone.
    async fn session(&mut self, mut connection: Connection) -> SessionEnd {
        self.queue.push_front(Order::Say(Ask::Subscribe));
        let mut send_at = None;
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.queue.push_back(order);
            }
            let now = Instant::now();
            send_at = match send_at {
                _ if self.queue.is_empty() => None,
                Some(at) => Some(at),
                None => Some(now + SAY_PATIENCE),
            };
            if !self.queue.iter().all(Order::can_wait) || send_at.is_some_and(|at| at <= now) {
                let batch = self.batch();
                if connection.writer.write_all(&batch).await.is_err() {
                    return SessionEnd::Lost;
                }
                send_at = None;
            }
            tokio::select! {
                biased;
                () = sleep_until(send_at.unwrap_or(now)), if send_at.is_some() => {}
                line = connection.lines.next_line() => match line {
                    Ok(Some(line)) => self.hear(&line),
                    Ok(None) | Err(_) => return SessionEnd::Lost,
                },
                order = self.orders.recv() => if let Some(order) = order {
                    self.queue.push_back(order);
                } else {
                    let _gone = connection.writer.write_all(&self.batch()).await;
                    return SessionEnd::Closed;
                },
            }
        }
    }

    /// Everything that can be sent now, as one text.
    fn batch(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for order in std::mem::take(&mut self.queue) {
            let (ask, answer) = match order {
                Order::Join => continue,
                Order::Say(ask) => (ask, None),
                Order::Ask { ask, answer } => (ask, Some(answer)),
            };
            self.next_id += 1;
            let request = Request { id: self.next_id, ask };
            match serde_json::to_writer(&mut text, &request) {
                Ok(()) => text.push(b'\n'),
                // Requests are strings and numbers in maps; they can always be written.
                Err(_) => continue,
            }
            if let Some(answer) = answer {
                self.waiting.insert(self.next_id, answer);
            }
        }
        text
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Told(told)) => {
                let _nobody_listens = self.reports.send(told.into());
            }
            Ok(Line::Reply { id, reply }) => {
                if let Some(answer) = self.waiting.remove(&id) {
                    let _gave_up = answer.send(Ok(reply));
                }
            }
            // A request that the runner does not understand has no reply: see `PROTOCOL`.
            Ok(Line::Hello { .. } | Line::Malformed { .. }) | Err(_) => {}
        }
    }

    fn fail_waiting(&mut self) {
        for answer in std::mem::take(&mut self.waiting).into_values() {
            let message = "the runner ended before it answered".to_owned();
            let _gave_up = answer.send(Err(LinkFailure { message, was_sent: true }));
        }
    }

    /// Refuses what was asked; what was only said is kept for later.
    fn fail_queue(&mut self, error: &io::Error) {
        while let Ok(order) = self.orders.try_recv() {
            self.queue.push_back(order);
        }
        for order in std::mem::take(&mut self.queue) {
            match order {
                Order::Join | Order::Say(Ask::Subscribe | Ask::Prepare { .. }) => {}
                Order::Say(ask) => self.queue.push_back(Order::Say(ask)),
                Order::Ask { answer, .. } => {
                    let message = format!("the runner cannot be reached: {error}");
                    let _gave_up = answer.send(Err(LinkFailure { message, was_sent: false }));
                }
            }
        }
    }

    /// Connects to the runner, and starts one if none answers.
    async fn connect(&self) -> io::Result<Connection> {
        if let Ok(connection) = self.try_connect().await {
            return Ok(connection);
        }
        self.launch()?;
        let trying = async {
            loop {
                match self.try_connect().await {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                    Err(_) => sleep(LAUNCH_LOOK).await,
                    connected => return connected,
                }
            }
        };
        let late = |_| io::Error::other(format!("it did not answer; see {}", self.log().display()));
        timeout(LAUNCH_MAX, trying).await.map_err(late)?
    }

    async fn try_connect(&self) -> io::Result<Connection> {
        let address = Address::new(&self.dir)?;
        let (reader, writer) = UnixStream::connect(address.path()).await?.into_split();
        let mut lines = BufReader::new(reader).lines();
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let greeting = timeout(LAUNCH_MAX, lines.next_line()).await??.ok_or_else(gone)?;
        match serde_json::from_str(&greeting)? {
            Line::Hello { protocol: PROTOCOL, .. } => Ok(Connection { lines, writer }),
            Line::Hello { protocol, pid } => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the runner (process {pid}) is of another version of Interlock (protocol \
                     {protocol}, here {PROTOCOL}); it ends by itself a minute after its last job"
                ),
            )),
            Line::Reply { .. } | Line::Told(_) | Line::Malformed { .. } => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the runner did not greet"))
            }
        }
    }

    /// Starts a runner that stays behind when this process ends.
    fn launch(&self) -> io::Result<()> {
        let Some((program, arguments)) = self.runner.split_first() else {
            return Err(io::Error::other("there is no command for the runner"));
        };
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(program);
        command.args(arguments).arg(&self.dir).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        // Waited for by a thread of its own, so that it leaves no zombie if it ends before us.
        thread::Builder::new().name("runner".to_owned()).spawn(move || child.wait()).map(|_| ())
    }

    fn log(&self) -> PathBuf {
        self.dir.join("runner.log")
    }
}
