//! The order of a job's steps: which may begin, which must be left out, and when all is said.
//!
//! A step begins when everything it depends on is done. A failure leaves out what depends on it,
//! and nothing else: independent branches go on, so that a rerun finds less to do.

use super::job::JobStep;
use interlock_ports::trigger::StepStatus;

/// Where every step of a job stands.
#[derive(Debug)]
pub(crate) struct Progress {
    steps: Vec<Standing>,
}

#[derive(Debug)]
struct Standing {
    name: Option<String>,
    depends: Vec<String>,
    retries_max: u32,
    continue_on_failure: bool,
    status: StepStatus,
    attempt: u32,
    /// It failed once and waits for its next attempt.
    pauses: bool,
}

/// What follows a failed attempt at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// Another attempt, after a pause.
    Retry,
    /// The step has failed.
    Failed,
}

impl Progress {
    /// Nothing has begun.
    pub(crate) fn new(steps: &[JobStep]) -> Self {
        let standing = |step: &JobStep| Standing {
            name: step.name.clone(),
            depends: step.depends.clone(),
            retries_max: step.retries_max,
            continue_on_failure: step.continue_on_failure,
            status: if step.kept { StepStatus::Kept } else { StepStatus::Pending },
            attempt: 0,
            pauses: false,
        };
        Self { steps: steps.iter().map(standing).collect() }
    }

    /// The steps that may begin now.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let ready = |step: &Standing| {
            step.status == StepStatus::Pending
                && !step.pauses
                && step.depends.iter().all(|name| self.lets_others_begin(name))
        };
        (0..self.steps.len()).filter(|index| self.steps.get(*index).is_some_and(ready)).collect()
    }

    fn lets_others_begin(&self, name: &str) -> bool {
        self.named(name).is_some_and(|step| match step.status {
            StepStatus::Succeeded | StepStatus::Kept => true,
            StepStatus::Failed => step.continue_on_failure,
            StepStatus::Pending | StepStatus::Running | StepStatus::Skipped => false,
        })
    }

    fn keeps_others_out(&self, name: &str) -> bool {
        self.named(name).is_none_or(|step| match step.status {
            StepStatus::Failed => !step.continue_on_failure,
            StepStatus::Skipped => true,
            StepStatus::Pending
            | StepStatus::Running
            | StepStatus::Succeeded
            | StepStatus::Kept => false,
        })
    }

    fn named(&self, name: &str) -> Option<&Standing> {
        self.steps.iter().find(|step| step.name.as_deref() == Some(name))
    }

    /// A step begins; the number of its attempt.
    pub(crate) fn begin(&mut self, index: usize) -> u32 {
        let Some(step) = self.steps.get_mut(index) else { return 0 };
        step.status = StepStatus::Running;
        step.attempt += 1;
        step.attempt
    }

    /// A step succeeded.
    pub(crate) fn succeed(&mut self, index: usize) {
        self.set(index, StepStatus::Succeeded);
    }

    /// A step failed, and trying again is of no use.
    pub(crate) fn give_up(&mut self, index: usize) -> AfterFailure {
        self.set(index, StepStatus::Failed);
        AfterFailure::Failed
    }

    /// An attempt at a step failed.
    pub(crate) fn fail(&mut self, index: usize) -> AfterFailure {
        let Some(step) = self.steps.get_mut(index) else { return AfterFailure::Failed };
        if step.attempt <= step.retries_max {
            step.status = StepStatus::Pending;
            step.pauses = true;
            return AfterFailure::Retry;
        }
        self.give_up(index)
    }

    /// The pause before a step's next attempt is over.
    pub(crate) fn unpause(&mut self, index: usize) {
        if let Some(step) = self.steps.get_mut(index) {
            step.pauses = false;
        }
    }

    /// Leaves out what can no longer begin; says what that was.
    pub(crate) fn leave_out(&mut self) -> Vec<usize> {
        let mut left_out = Vec::new();
        loop {
            let next = (0..self.steps.len()).find(|index| {
                self.steps.get(*index).is_some_and(|step| {
                    step.status == StepStatus::Pending
                        && step.depends.iter().any(|name| self.keeps_others_out(name))
                })
            });
            let Some(index) = next else { return left_out };
            self.set(index, StepStatus::Skipped);
            left_out.push(index);
        }
    }

    /// Leaves out everything that has not begun.
    pub(crate) fn leave_out_all(&mut self) -> Vec<usize> {
        let pending = |step: &Standing| step.status == StepStatus::Pending;
        let left_out: Vec<usize> = (0..self.steps.len())
            .filter(|index| self.steps.get(*index).is_some_and(pending))
            .collect();
        for index in &left_out {
            self.set(*index, StepStatus::Skipped);
        }
        left_out
    }

    fn set(&mut self, index: usize, status: StepStatus) {
        if let Some(step) = self.steps.get_mut(index) {
            step.status = status;
        }
    }

    /// Whether no step runs or may still run.
    pub(crate) fn is_over(&self) -> bool {
        self.steps.iter().all(|step| match step.status {
            StepStatus::Pending | StepStatus::Running => false,
            StepStatus::Succeeded | StepStatus::Failed | StepStatus::Skipped | StepStatus::Kept => {
                true
            }
        })
    }

    /// Whether the job has failed by what happened so far.
    pub(crate) fn has_failed(&self) -> bool {
        self.steps.iter().any(|step| match step.status {
            StepStatus::Failed => !step.continue_on_failure,
            StepStatus::Skipped => true,
            StepStatus::Pending
            | StepStatus::Running
            | StepStatus::Succeeded
            | StepStatus::Kept => false,
        })
    }

    /// How often a step has begun.
    pub(crate) fn attempt(&self, index: usize) -> u32 {
        self.steps.get(index).map_or(0, |step| step.attempt)
    }

    /// The names of the steps with their status.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&str, StepStatus)> {
        self.steps.iter().filter_map(|step| Some((step.name.as_deref()?, step.status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::job::Exec;

    /// Steps written as `name:depends,depends`, a `*` for continue-on-failure, `!` for kept.
    fn progress(text: &str) -> Progress {
        let step = |word: &str| {
            let (name, depends) = word.split_once(':').unwrap_or((word, ""));
            let depends = depends.split(',').filter(|name| !name.is_empty());
            JobStep {
                name: Some(name.trim_end_matches(['*', '!']).to_owned()),
                exec: Exec { argv: vec![], env: [].into(), workdir: String::new() },
                depends: depends.map(str::to_owned).collect(),
                retries_max: 0,
                timeout_ms: None,
                continue_on_failure: name.ends_with('*'),
                kept: name.ends_with('!'),
            }
        };
        Progress::new(&text.split_whitespace().map(step).collect::<Vec<_>>())
    }

    /// Runs everything; the named steps fail. Returns the order and the final standings.
    fn run(text: &str, failing: &[&str]) -> (String, String) {
        let mut progress = progress(text);
        let mut order = Vec::new();
        while !progress.is_over() {
            let ready = progress.ready();
            assert!(!ready.is_empty(), "nothing can begin: {progress:?}");
            for index in ready {
                progress.begin(index);
                let name = progress.steps[index].name.clone().unwrap();
                if failing.contains(&name.as_str()) {
                    progress.give_up(index);
                } else {
                    progress.succeed(index);
                }
                order.push(name);
            }
            progress.leave_out();
        }
        let standings: Vec<_> =
            progress.standings().map(|(name, status)| format!("{name}={status}")).collect();
        let verdict = if progress.has_failed() { "failed" } else { "good" };
        (order.join(" "), format!("{verdict}: {}", standings.join(" ")))
    }

    #[test]
    fn steps_run_in_the_order_of_their_dependencies() {
        let (order, end) = run("a b:a c:a d:b,c", &[]);
        assert_eq!(order, "a b c d");
        assert_eq!(end, "good: a=succeeded b=succeeded c=succeeded d=succeeded");
    }

    #[test]
    fn a_failure_leaves_out_what_depends_on_it_and_nothing_else() {
        let (order, end) = run("a b:a c:b d x y:x", &["b"]);
        assert_eq!(order, "a d x b y");
        assert_eq!(
            end,
            "failed: a=succeeded b=failed c=skipped d=succeeded x=succeeded y=succeeded"
        );
    }

    #[test]
    fn a_failure_that_may_happen_changes_nothing() {
        let (order, end) = run("a* b:a", &["a"]);
        assert_eq!(order, "a b");
        assert_eq!(end, "good: a=failed b=succeeded");
    }

    #[test]
    fn kept_steps_count_as_done() {
        let (order, end) = run("a! b:a c:b", &[]);
        assert_eq!(order, "b c");
        assert_eq!(end, "good: a=kept b=succeeded c=succeeded");
    }

    #[test]
    fn a_step_is_tried_as_often_as_it_says() {
        let mut progress = progress("a");
        progress.steps[0].retries_max = 2;
        for attempt in 1..=2 {
            assert_eq!(progress.begin(0), attempt);
            assert_eq!(progress.fail(0), AfterFailure::Retry);
            assert!(progress.ready().is_empty(), "it pauses");
            progress.unpause(0);
        }
        assert_eq!(progress.begin(0), 3);
        assert_eq!(progress.fail(0), AfterFailure::Failed);
    }

    #[test]
    fn an_ended_job_leaves_out_the_rest() {
        let mut progress = progress("a b:a c");
        progress.begin(0);
        assert_eq!(progress.leave_out_all(), [1, 2]);
        progress.give_up(0);
        assert!(progress.is_over() && progress.has_failed());
    }
}
