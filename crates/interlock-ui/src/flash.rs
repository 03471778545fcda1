//! What a page says first after a form was sent: one word in the address, from a closed list.

/// What came of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flash {
    pub(crate) head: &'static str,
    pub(crate) text: &'static str,
}

/// Every word that may stand in `done=`.
const ALL: [(&str, Flash); 17] = [
    (
        "accepted",
        flash(
            "Accepted, not yet applied.",
            "The owner of this pipeline answers slowly. This page updates when it is done.",
        ),
    ),
    ("run", flash("The run was asked for.", "It has a slot of its own, under `manual`.")),
    (
        "rerun",
        flash(
            "The slot runs again.",
            "It was opened as the next generation; what was recorded stays.",
        ),
    ),
    (
        "slot-run",
        flash("The slot runs.", "It was opened again, and goes first through its conditions."),
    ),
    ("cancelled", flash("The slot was cancelled.", "What ran is asked to end.")),
    (
        "paused",
        flash("Paused.", "Nothing is opened or started until it is resumed; what runs goes on."),
    ),
    ("resumed", flash("Resumed.", "What the plan said is being done.")),
    (
        "caught-up",
        flash("The catch-up is planned.", "What is owed is opened now, as the plan says."),
    ),
    (
        "catchup-stopped",
        flash(
            "The catch-up was stopped.",
            "What it had opened and not started is cancelled; what runs goes on.",
        ),
    ),
    ("acknowledged", flash("Acknowledged.", "It is yours; the channels are told.")),
    ("resolved", flash("Resolved.", "It opens again if it is found again.")),
    ("noted", flash("The note is kept.", "It stands in the history of the incident.")),
    ("silenced", flash("Silenced.", "Everything is still recorded.")),
    ("unsilenced", flash("The silence was ended.", "What lasts is told now.")),
    ("sent-again", flash("Sent again.", "The alert is on its way; its state is shown below.")),
    (
        "barked",
        flash("A test alert was sent.", "It goes through every channel as a missed run would."),
    ),
    ("backfill", flash("Done.", "The backfill changed as you asked.")),
];

const fn flash(head: &'static str, text: &'static str) -> Flash {
    Flash { head, text }
}

/// What a word stands for.
pub(crate) fn find(word: &str) -> Option<Flash> {
    ALL.into_iter().find(|(own, _)| *own == word).map(|(_, flash)| flash)
}
