//! Cycles in "waits for" relations.

use std::collections::{BTreeMap, BTreeSet};

/// The names of one cycle, the first repeated at the end; `None` when nothing waits for itself.
///
/// Walks without recursion, because the number of pipelines is not bounded.
pub(crate) fn find<'a>(edges: &BTreeMap<&'a str, Vec<&'a str>>) -> Option<Vec<&'a str>> {
    let mut finished = BTreeSet::new();
    for start in edges.keys() {
        // The path so far, each with how many of its edges were followed.
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        let mut on_path = BTreeSet::from([*start]);
        while let Some((name, followed)) = path.last_mut() {
            let next = edges.get(name).and_then(|targets| targets.get(*followed)).copied();
            *followed += 1;
            match next {
                None => {
                    finished.insert(*name);
                    on_path.remove(name);
                    path.pop();
                }
                Some(next) if on_path.contains(next) => {
                    let mut cycle: Vec<_> = path
                        .iter()
                        .map(|(name, _)| *name)
                        .skip_while(|name| *name != next)
                        .collect();
                    cycle.push(next);
                    return Some(cycle);
                }
                Some(next) if !finished.contains(next) && edges.contains_key(next) => {
                    on_path.insert(next);
                    path.push((next, 0));
                }
                Some(_) => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(edges: &[(&'static str, &[&'static str])]) -> Option<Vec<&'static str>> {
        find(&edges.iter().map(|(name, targets)| (*name, targets.to_vec())).collect())
    }

    #[test]
    fn cycles_are_named_and_diamonds_are_none() {
        assert_eq!(cycle(&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &[])]), None);
        assert_eq!(
            cycle(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]),
            Some(vec!["b", "c", "b"])
        );
        assert_eq!(cycle(&[("a", &["a"])]), Some(vec!["a", "a"]));
        assert_eq!(cycle(&[("a", &["missing"])]), None);
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let names: Vec<String> = (0..200_000).map(|n| format!("p{n:06}")).collect();
        let edges =
            names.windows(2).map(|pair| (pair[0].as_str(), vec![pair[1].as_str()])).collect();
        assert_eq!(find(&edges), None);
    }
}
