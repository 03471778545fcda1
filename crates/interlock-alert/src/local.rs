//! The real channels, as the project's files declare them.

use std::{fmt, future::Future, io, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use interlock_config::{
    route::Subject,
    server::{Alert as Declared, AlertFormat, Channel},
    silence::Silence,
};
use interlock_core::{
    id::PipelineId,
    incident::{Alert, EVENT},
    message::{ACTION, RUNBOOK, default_runbook, runbook},
    pipeline::Pipeline,
};
use interlock_trigger::web::Web;
use jiff::{SignedDuration, Timestamp};

use crate::channel::{
    AlertFiles, Email, Http, Pagerduty, Slack, Threads, Webhook, is_for_people, payload,
    to_console, to_file,
};
use interlock_ports::channel::{
    AlertMessage, ChannelPolicy, Channels, Delivery, DeliveryFuture, HoldFuture, HoldReason,
    PrepareFuture, RouteFuture,
};

/// What a pipeline declares, if it is known, to wait for.
pub type Known<'a> = Pin<Box<dyn Future<Output = Option<Arc<Pipeline>>> + Send + 'a>>;

/// The silences that there are, to wait for.
pub type Silences<'a> = Pin<Box<dyn Future<Output = Arc<[Silence]>> + Send + 'a>>;

/// The key of an open incident, if there is one, to wait for.
pub type Trouble<'a> = Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>;

/// Prints a line for people.
pub type Console = Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// How long a request may take unless somebody says otherwise.
const TIME_LIMIT: SignedDuration = SignedDuration::from_secs(10);
/// The channel that is always there.
const CONSOLE: &str = "console";

/// What the files say now: read at each delivery, so that an edit holds at once.
pub trait Book: Send + Sync + 'static {
    /// The declared channels.
    fn channels(&self) -> Arc<[Declared]>;

    /// What a pipeline declares, for its owner and labels.
    fn pipeline<'a>(&'a self, name: &'a PipelineId) -> Known<'a>;

    /// Reads at once what pipelines declare: many alerts will ask for it in a moment.
    fn prepare(&self, _names: Vec<PipelineId>) -> PrepareFuture<'_> {
        Box::pin(std::future::ready(()))
    }

    /// The silences as they are now.
    fn silences(&self) -> Silences<'_> {
        Box::pin(std::future::ready(Arc::default()))
    }

    /// An incident of a pipeline that is open now: why what depends on it may be in trouble too.
    fn trouble<'a>(&'a self, _name: &'a PipelineId) -> Trouble<'a> {
        Box::pin(std::future::ready(None))
    }
}

/// The channels that `interlock.yaml` declares.
pub struct LocalChannels {
    book: Arc<dyn Book>,
    web: Web,
    console: Console,
    /// Where relative paths begin.
    directory: PathBuf,
    files: AlertFiles,
    /// Where Slack's threads are.
    threads: Threads,
    time_limit: SignedDuration,
}

impl LocalChannels {
    /// Channels that are declared in a book and write where they are told to.
    pub fn new(book: Arc<dyn Book>, web: Web, console: Console, directory: PathBuf) -> Self {
        let (files, threads, time_limit) = (AlertFiles::default(), Threads::default(), TIME_LIMIT);
        Self { book, web, console, directory, files, threads, time_limit }
    }

    /// The same, with another time limit for a request.
    #[must_use]
    pub fn within(self, time_limit: SignedDuration) -> Self {
        Self { time_limit, ..self }
    }

    /// The same, and where threads began is kept in a file, for the next process.
    #[must_use]
    pub fn with_threads_in(self, file: PathBuf) -> Self {
        Self { threads: Threads::kept_in(file), ..self }
    }
}

impl Channels for LocalChannels {
    fn prepare(&self, pipelines: Vec<PipelineId>) -> PrepareFuture<'_> {
        self.book.prepare(pipelines)
    }

    fn route<'a>(&'a self, alert: &'a Alert) -> RouteFuture<'a> {
        Box::pin(self.wanted_by(alert))
    }

    fn instead_of<'a>(&'a self, channel: &'a str, alert: &'a Alert) -> RouteFuture<'a> {
        Box::pin(self.others(channel, alert))
    }

    fn hold<'a>(&'a self, alert: &'a Alert, now: Timestamp) -> HoldFuture<'a> {
        Box::pin(self.reason_to_wait(alert, now))
    }

    fn manner(&self, channel: &str) -> ChannelPolicy {
        let channels = self.book.channels();
        let declared = channels.iter().find(|declared| declared.name == channel);
        declared.map_or_else(
            || ChannelPolicy { takes_digests: channel == CONSOLE, ..ChannelPolicy::default() },
            |declared| ChannelPolicy {
                after: declared.after,
                findings: declared.findings,
                of: declared.of,
                recovered: declared.recovered,
                repeat: declared.repeat,
                takes_digests: declared.digest.unwrap_or_else(|| is_for_people(&declared.channel)),
            },
        )
    }

    fn deliver(&self, channel: &str, mut notice: AlertMessage) -> DeliveryFuture {
        let channels = self.book.channels();
        let declared = channels.iter().find(|declared| declared.name == channel);
        let format = declared.map(|declared| declared.format).unwrap_or_default();
        let of_route = declared.and_then(|declared| declared.runbook.clone());
        let declared = match declared.map(|declared| declared.channel.clone()) {
            Some(declared) => declared,
            None if channel == CONSOLE => Channel::Console,
            None => {
                let reason = format!("interlock.yaml has no alert channel `{channel}` any more");
                return Box::pin(std::future::ready(Delivery::Refused { reason }));
            }
        };
        let send = self.sender(channel, declared, format);
        let (book, time_limit) = (Arc::clone(&self.book), self.time_limit);
        Box::pin(async move {
            let limit = Duration::try_from(time_limit).unwrap_or(Duration::ZERO);
            // A pipeline that cannot be read in time is told of without its weight and its own runbook.
            let asked = declared_for(&*book, &notice.alert);
            let pipeline = tokio::time::timeout(limit, asked).await.ok().flatten();
            complete(&mut notice.alert, pipeline.as_deref(), of_route);
            send(notice).await
        })
    }
}

/// Delivers one alert.
type AlertSender = Box<dyn FnOnce(AlertMessage) -> DeliveryFuture + Send>;

/// What the pipeline of an alert declares.
async fn declared_for(book: &dyn Book, alert: &Alert) -> Option<Arc<Pipeline>> {
    match PipelineId::parse(&alert.pipeline_id) {
        Ok(name) => book.pipeline(&name).await,
        Err(_belongs_to_none) => None,
    }
}

/// Adds how much its pipeline matters (`tier`, and `critical` where its SLA says so), what to do, and where that is said: by the
/// pipeline, else by the route, else by the page of all messages.
fn complete(alert: &mut Alert, pipeline: Option<&Pipeline>, of_route: Option<String>) {
    if let Some(tier) = pipeline.and_then(|pipeline| pipeline.tier) {
        alert.details.entry("tier".to_owned()).or_insert_with(|| tier.into());
    }
    if pipeline.is_some_and(|pipeline| pipeline.sla.critical) {
        alert.details.entry("critical".to_owned()).or_insert_with(|| true.into());
    }
    let kind = alert.details.get(EVENT).and_then(|kind| kind.as_str());
    let known = runbook(kind.unwrap_or(&alert.alert_type));
    if let Some(known) = known {
        alert.details.entry(ACTION.to_owned()).or_insert_with(|| known.act.into());
    }
    let own = pipeline.and_then(|pipeline| pipeline.runbook.clone()).or(of_route);
    if let Some(own) = own {
        alert.details.insert(RUNBOOK.to_owned(), own.into());
    } else if let Some(known) = known {
        let link = default_runbook(known.kind);
        alert.details.entry(RUNBOOK.to_owned()).or_insert_with(|| link.into());
    }
}

impl LocalChannels {
    /// What delivers to a channel, ready to go off by itself.
    fn sender(&self, name: &str, declared: Channel, format: AlertFormat) -> AlertSender {
        let (web, time_limit) = (self.web.clone(), self.time_limit);
        match declared {
            Channel::Console => {
                let console = Arc::clone(&self.console);
                Box::new(|notice| Box::pin(to_console(console, notice)))
            }
            Channel::File { path } => {
                let (path, files) = (self.directory.join(path), self.files.clone());
                Box::new(move |notice| {
                    Box::pin(to_file(files, path, payload(format, &notice.alert)))
                })
            }
            Channel::Webhook { url, secret, headers } => {
                let webhook = Webhook { url, secret, headers, format, time_limit };
                Box::new(|notice| Box::pin(webhook.deliver(web, notice)))
            }
            Channel::Slack(declared) => {
                let (name, threads) = (name.to_owned(), self.threads.clone());
                let slack = Slack { declared, name, threads, time_limit };
                Box::new(|notice| Box::pin(slack.deliver(web, notice)))
            }
            Channel::Email(declared) => {
                let email = Email { declared, time_limit };
                Box::new(|notice| Box::pin(email.deliver(web, notice)))
            }
            Channel::Pagerduty { routing_key, url } => {
                let pagerduty = Pagerduty { routing_key, url, time_limit };
                Box::new(|notice| Box::pin(pagerduty.deliver(web, notice)))
            }
            Channel::Http { url, method, headers, body } => {
                let http = Http { url, method, headers, body, format, time_limit };
                Box::new(|notice| Box::pin(http.deliver(web, notice)))
            }
        }
    }
}

impl LocalChannels {
    async fn declared(&self, alert: &Alert) -> Option<Arc<Pipeline>> {
        declared_for(&*self.book, alert).await
    }

    async fn wanted_by(&self, alert: &Alert) -> Vec<String> {
        let pipeline = self.declared(alert).await;
        let subject = subject(alert, pipeline.as_deref());
        let channels = self.book.channels();
        let wanted = channels.iter().filter(|declared| declared.when.matches(&subject));
        wanted.map(|declared| declared.name.clone()).collect()
    }

    /// A silence that matches, or an upstream that is in trouble itself.
    async fn reason_to_wait(&self, alert: &Alert, now: Timestamp) -> Option<HoldReason> {
        let pipeline = self.declared(alert).await;
        let subject = subject(alert, pipeline.as_deref());
        let silences = self.book.silences().await;
        let silence = silences.iter().find_map(|silence| {
            let until = silence.in_force(now)?;
            silence.when.matches(&subject).then_some((silence, until))
        });
        if let Some((silence, until)) = silence {
            let reason = format!("silence {}: {}", silence.id, silence.reason);
            return Some(HoldReason { reason, until: Some(until) });
        }
        for upstream in pipeline.iter().flat_map(|pipeline| &pipeline.readiness.upstreams) {
            let Ok(name) = PipelineId::parse(&upstream.pipeline) else { continue };
            if let Some(key) = self.book.trouble(&name).await {
                let reason = format!("its upstream {name} has an incident: {key}");
                return Some(HoldReason { reason, until: None });
            }
        }
        None
    }

    async fn others(&self, channel: &str, alert: &Alert) -> Vec<String> {
        let channels = self.book.channels();
        let works =
            |name: &String| name != channel && channels.iter().any(|other| other.name == *name);
        let mut others: Vec<String> =
            self.wanted_by(alert).await.into_iter().filter(works).collect();
        if others.is_empty() && channel != CONSOLE {
            others.push(CONSOLE.to_owned());
        }
        others
    }
}

/// What routes and silences look at.
fn subject<'a>(alert: &'a Alert, pipeline: Option<&'a Pipeline>) -> Subject<'a> {
    Subject {
        level: &alert.level,
        alert_type: &alert.alert_type,
        pipeline: &alert.pipeline_id,
        owner: pipeline.and_then(|pipeline| pipeline.owner.as_deref()),
        labels: pipeline.map(|pipeline| &pipeline.labels),
    }
}

impl fmt::Debug for LocalChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalChannels").finish_non_exhaustive()
    }
}
