//! The real channels, as the project's files declare them.

use std::{
    fmt,
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
};

use interlock_config::{
    route::Subject,
    server::{Alert as Declared, Channel},
};
use interlock_core::{id::PipelineId, incident::Alert, pipeline::Pipeline};
use interlock_trigger::web::Web;
use jiff::SignedDuration;

use crate::{
    channel::{Webhook, is_supported, kind, to_console, to_file},
    contract::{Channels, Delivery, DeliveryFuture, Notice, RouteFuture},
};

/// What a pipeline declares, if it is known, to wait for.
pub type Known<'a> = Pin<Box<dyn Future<Output = Option<Arc<Pipeline>>> + Send + 'a>>;

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
}

/// The channels that `interlock.yaml` declares.
pub struct LocalChannels {
    book: Arc<dyn Book>,
    web: Web,
    console: Console,
    /// Where relative paths begin.
    directory: PathBuf,
    files: Arc<Mutex<()>>,
    time_limit: SignedDuration,
}

impl LocalChannels {
    /// Channels that are declared in a book and write where they are told to.
    pub fn new(book: Arc<dyn Book>, web: Web, console: Console, directory: PathBuf) -> Self {
        let (files, time_limit) = (Arc::default(), TIME_LIMIT);
        Self { book, web, console, directory, files, time_limit }
    }

    /// The same, with another time limit for a request.
    #[must_use]
    pub fn within(self, time_limit: SignedDuration) -> Self {
        Self { time_limit, ..self }
    }

    /// A sentence for each declared channel that this build cannot deliver to.
    pub fn warnings(&self) -> Vec<String> {
        let channels = self.book.channels();
        let unsupported = channels.iter().filter(|declared| !is_supported(&declared.channel));
        unsupported
            .map(|declared| {
                format!(
                    "alerts for `{}` become dead letters, told on the console: {}",
                    declared.name,
                    unsupported_reason(&declared.channel)
                )
            })
            .collect()
    }
}

fn unsupported_reason(channel: &Channel) -> String {
    format!("this build does not deliver to channels of type {} yet", kind(channel))
}

impl Channels for LocalChannels {
    fn route<'a>(&'a self, alert: &'a Alert) -> RouteFuture<'a> {
        Box::pin(self.wanted_by(alert))
    }

    fn instead_of<'a>(&'a self, channel: &'a str, alert: &'a Alert) -> RouteFuture<'a> {
        Box::pin(self.others(channel, alert))
    }

    fn deliver(&self, channel: &str, notice: Notice) -> DeliveryFuture {
        let channels = self.book.channels();
        let declared = channels.iter().find(|declared| declared.name == channel);
        let declared = match declared.map(|declared| declared.channel.clone()) {
            Some(declared) => declared,
            None if channel == CONSOLE => Channel::Console,
            None => {
                let reason = format!("interlock.yaml has no alert channel `{channel}` any more");
                return Box::pin(std::future::ready(Delivery::Refused { reason }));
            }
        };
        match declared {
            Channel::Console => Box::pin(to_console(Arc::clone(&self.console), notice)),
            Channel::File { path } => {
                Box::pin(to_file(self.directory.join(path), Arc::clone(&self.files), notice))
            }
            Channel::Webhook { url, secret, headers } => {
                let webhook = Webhook { url, secret, headers, time_limit: self.time_limit };
                Box::pin(webhook.deliver(self.web.clone(), notice))
            }
            Channel::Slack { .. }
            | Channel::Email(_)
            | Channel::Pagerduty { .. }
            | Channel::Http { .. }
            | Channel::Sns { .. }
            | Channel::Eventbridge { .. }
            | Channel::Pubsub { .. }
            | Channel::S3 { .. } => {
                let reason = unsupported_reason(&declared);
                Box::pin(std::future::ready(Delivery::Refused { reason }))
            }
        }
    }
}

impl LocalChannels {
    async fn wanted_by(&self, alert: &Alert) -> Vec<String> {
        let pipeline = match PipelineId::parse(&alert.pipeline_id) {
            Ok(name) => self.book.pipeline(&name).await,
            Err(_belongs_to_none) => None,
        };
        let subject = Subject {
            level: &alert.level,
            alert_type: &alert.alert_type,
            pipeline: &alert.pipeline_id,
            owner: pipeline.as_ref().and_then(|pipeline| pipeline.owner.as_deref()),
            labels: pipeline.as_ref().map(|pipeline| &pipeline.labels),
        };
        let channels = self.book.channels();
        let wanted = channels.iter().filter(|declared| declared.when.matches(&subject));
        wanted.map(|declared| declared.name.clone()).collect()
    }

    async fn others(&self, channel: &str, alert: &Alert) -> Vec<String> {
        let channels = self.book.channels();
        let works = |name: &String| {
            name != channel
                && channels.iter().any(|other| other.name == *name && is_supported(&other.channel))
        };
        let mut others: Vec<String> =
            self.wanted_by(alert).await.into_iter().filter(works).collect();
        if others.is_empty() && channel != CONSOLE {
            others.push(CONSOLE.to_owned());
        }
        others
    }
}

impl fmt::Debug for LocalChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalChannels").finish_non_exhaustive()
    }
}
