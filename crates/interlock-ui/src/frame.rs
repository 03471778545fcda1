//! What all pages have: navigation with its counts, the zone switch, the theme, the banners that come first.

use interlock_answers::{
    Listing,
    model::{backfill::BackfillAnswer, incident::IncidentGroupsAnswer, session::SessionAnswer},
};
use jiff::Timestamp;

use crate::{
    api::Api,
    assets::{self, Asset},
    flash::Flash,
    parts::Icon,
    query::Query,
    theme::Theme,
    times::{Times, ZoneChoice},
    visit::Preferences,
};

/// The parts of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    Fleet,
    Runs,
    Incidents,
    Backfill,
    System,
    /// A page outside of it.
    None,
}

/// An entry of the navigation.
#[derive(Debug, Clone)]
pub(crate) struct NavItem {
    pub(crate) href: &'static str,
    pub(crate) icon: Icon,
    pub(crate) word: &'static str,
    pub(crate) is_current: bool,
    pub(crate) count: Option<NavCount>,
}

/// A number in the navigation.
#[derive(Debug, Clone)]
pub(crate) struct NavCount {
    pub(crate) text: String,
    pub(crate) class: &'static str,
    pub(crate) what: &'static str,
}

/// A choice of a switch.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) href: String,
    pub(crate) word: String,
    pub(crate) title: String,
    pub(crate) icon: Option<Icon>,
    pub(crate) is_current: bool,
}

/// What the navigation counts, as far as it could be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    incidents: Option<(u64, bool)>,
    backfills: Option<(usize, bool)>,
}

impl Counts {
    /// Asks; what cannot be counted is left out, and the page is shown all the same.
    pub(crate) async fn ask(api: &Api) -> Self {
        let groups: Result<IncidentGroupsAnswer, _> =
            api.get("/api/v1/incidents/groups?by=kind").await;
        let backfills: Result<Listing<BackfillAnswer>, _> =
            api.get("/api/v1/backfills?state=running&state=paused&limit=100").await;
        Self {
            incidents: groups.ok().map(|groups| (groups.scanned, groups.is_cut)),
            backfills: backfills.ok().map(|list| (list.items.len(), list.next.is_some())),
        }
    }
}

/// What a frame is made of.
pub(crate) struct FrameInput {
    pub(crate) title: String,
    pub(crate) tab: Tab,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) viewer: Option<SessionAnswer>,
    pub(crate) counts: Counts,
    pub(crate) flash: Option<Flash>,
}

/// The frame of a page.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) nav: Vec<NavItem>,
    pub(crate) zones: Vec<Choice>,
    pub(crate) themes: Vec<Choice>,
    pub(crate) theme: Theme,
    pub(crate) viewer: Option<SessionAnswer>,
    pub(crate) flash: Option<Flash>,
    /// As of when the plan is shown, if not of now.
    pub(crate) at: Option<AtBanner>,
    /// Now, as fields have it.
    pub(crate) now_field: String,
    /// Now, for the note that says since when there is no connection.
    pub(crate) now_text: String,
    /// What was searched for.
    pub(crate) q: String,
    pub(crate) path: String,
    pub(crate) style: &'static Asset,
    pub(crate) htmx: &'static Asset,
    pub(crate) app: &'static Asset,
}

/// Says that another time is looked at.
#[derive(Debug, Clone)]
pub(crate) struct AtBanner {
    pub(crate) text: String,
    pub(crate) back: String,
}

/// Which pages answer what would be at another time.
const TIME_MACHINE: [&str; 2] = ["/", "/pipelines/"];

impl Frame {
    pub(crate) fn new(input: FrameInput, preferences: &Preferences, times: &Times) -> Self {
        let FrameInput { title, tab, path, query, viewer, counts, flash } = input;
        let lasting = query.without("done");
        let zone = times.zone();
        let at = lasting.get("at").and_then(|text| zone.read(text));
        let at = at.filter(|_| {
            TIME_MACHINE.iter().any(|own| path == *own || own.len() > 1 && path.starts_with(own))
        });
        let at = at.map(|at| AtBanner {
            text: format!("{} {} {}", zone.day(at), zone.clock(at), zone.letters(at)),
            back: lasting.clone().without("at").at(&path),
        });
        Self {
            title,
            nav: nav(tab, &counts),
            zones: zones(preferences, &lasting, &path, times.now),
            themes: themes(preferences.theme, &lasting, &path),
            theme: preferences.theme,
            viewer,
            flash,
            at,
            now_field: zone.field(times.now),
            now_text: format!("{} {}", zone.second(times.now), zone.letters(times.now)),
            q: lasting.get("q").unwrap_or_default().to_owned(),
            path,
            style: assets::style(),
            htmx: assets::htmx(),
            app: assets::app(),
        }
    }

    /// Whether who looks may act on pipelines: they may, and look at now.
    pub(crate) fn may_act(&self) -> bool {
        self.at.is_none() && self.viewer.as_ref().is_some_and(SessionAnswer::may_act)
    }

    /// The page that shows the plan as of another time: this one, if it plans.
    pub(crate) fn time_path(&self) -> &str {
        if self.path.starts_with(TIME_MACHINE[1]) && self.path.matches('/').count() == 2 {
            &self.path
        } else {
            TIME_MACHINE[0]
        }
    }

    /// Whether there is a session that can be ended.
    pub(crate) fn token_name(&self) -> Option<&str> {
        self.viewer.as_ref()?.name.as_deref()
    }
}

fn nav(tab: Tab, counts: &Counts) -> Vec<NavItem> {
    let number = |count: u64, is_cut: bool| format!("{count}{}", if is_cut { "+" } else { "" });
    let incidents = counts.incidents.filter(|(count, _)| *count > 0);
    let incidents = incidents.map(|(count, is_cut)| NavCount {
        text: number(count, is_cut),
        class: "is-failed",
        what: "open",
    });
    let backfills = counts.backfills.filter(|(count, _)| *count > 0);
    let backfills = backfills.map(|(count, is_cut)| NavCount {
        text: number(count as u64, is_cut),
        class: "",
        what: "under way",
    });
    let item = |(own, href, icon, word): (Tab, &'static str, &'static str, &'static str)| NavItem {
        href,
        icon: Icon(icon),
        word,
        is_current: own == tab,
        count: match own {
            Tab::Incidents => incidents.clone(),
            Tab::Backfill => backfills.clone(),
            Tab::Fleet | Tab::Runs | Tab::System | Tab::None => None,
        },
    };
    let all = [
        (Tab::Fleet, "/", "i-rows", "Fleet"),
        (Tab::Runs, "/runs", "i-runs", "Runs"),
        (Tab::Incidents, "/incidents", "i-bell", "Incidents"),
        (Tab::Backfill, "/backfills", "i-stack", "Backfill"),
        (Tab::System, "/system", "i-gear", "System"),
    ];
    all.into_iter().map(item).collect()
}

fn zones(preferences: &Preferences, query: &Query, path: &str, now: Timestamp) -> Vec<Choice> {
    let mine = preferences.mine.as_ref().map_or_else(
        || "the zone of this browser, once it has said which; UTC until then".to_owned(),
        |zone| format!("{}, {}", zone.name, zone.letters(now)),
    );
    let all = [
        (ZoneChoice::Schedule, "Schedule", "each time in the zone of its schedule".to_owned()),
        (ZoneChoice::Mine, "Mine", mine),
        (ZoneChoice::Utc, "UTC", "UTC".to_owned()),
    ];
    let choice = |(own, word, title): (ZoneChoice, &str, String)| Choice {
        href: query.clone().with("tz", own.as_str()).at(path),
        word: word.to_owned(),
        title,
        icon: None,
        is_current: own == preferences.choice,
    };
    all.into_iter().map(choice).collect()
}

fn themes(current: Theme, query: &Query, path: &str) -> Vec<Choice> {
    let choice = |theme: Theme| Choice {
        href: query.clone().with("theme", theme.as_str()).at(path),
        word: theme.title().to_owned(),
        title: theme.title().to_owned(),
        icon: Some(Icon(theme.icon())),
        is_current: theme == current,
    };
    Theme::ALL.into_iter().map(choice).collect()
}
