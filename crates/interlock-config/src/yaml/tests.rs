//! What the tree says about well-formed, odd and hostile YAML.

use super::*;

fn read(text: &str) -> (Option<Node>, Vec<String>) {
    let mut problems = Problems::default();
    let node = parse(text, Origin::File, &mut problems);
    let file = problems.source("a.yaml".as_ref(), text);
    let found = problems.finish(&file, None);
    (
        node,
        found.iter().map(|p| format!("{}@{:?} {}", p.code.as_str(), p.span, p.message)).collect(),
    )
}

fn tree(text: &str) -> Node {
    let (node, problems) = read(text);
    assert_eq!(problems, Vec::<String>::new());
    node.expect("a tree")
}

#[test]
fn scalars_follow_the_core_schema() {
    let node = tree(
        "a: no\nb: on\nc: 09:00\nd: 1_000\ne: 0x1F\nf: 1e3\ng: ~\nh: true\ni: -7\nj: 1.5\nk: '1'\n\
         l:\nm: 010\nn: .inf\no: 2026-02-25\np: 99999999999999999999\nq: +5\nr: 0o17\ns: ''\n",
    );
    let kinds: Vec<_> = node.entries().iter().map(|e| (e.key.as_str(), e.value.kind())).collect();
    let expected = [
        ("a", "text"),
        ("b", "text"),
        ("c", "text"),
        ("d", "text"),
        ("e", "a number"),
        ("f", "a number"),
        ("g", "nothing"),
        ("h", "true or false"),
        ("i", "a number"),
        ("j", "a number"),
        ("k", "text"),
        ("l", "nothing"),
        ("m", "a number"),
        ("n", "text"),
        ("o", "text"),
        ("p", "text"),
        ("q", "a number"),
        ("r", "a number"),
        ("s", "text"),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(node.get("e").unwrap().value, Value::Int(31));
    assert_eq!(node.get("m").unwrap().value, Value::Int(10));
}

#[test]
fn every_key_and_value_knows_its_place() {
    let text = "# é\nname: \"ünder\" # c\nlist: [a, 'b c']\nesc: \"a\\tb\"\n";
    let node = tree(text);
    let at = |span: Span| &text[span.range()];
    assert_eq!(at(node.entry("name").unwrap().key_span), "name");
    let name = node.get("name").unwrap();
    assert_eq!(at(name.span), "\"ünder\"");
    assert_eq!(at(name.span_within(3..6)), "der");
    let list = node.get("list").unwrap();
    assert_eq!(at(list.span), "[a, 'b c']");
    assert_eq!(at(list.items()[1].span_within(2..3)), "c");
    let escaped = node.get("esc").unwrap();
    assert_eq!(at(escaped.span_within(1..2)), "\"a\\tb\"", "escapes: the whole scalar");
}

#[test]
fn crlf_and_a_byte_order_mark_change_nothing() {
    let node = tree("\u{feff}name: x\r\nlist:\r\n  - a\r\n");
    assert_eq!(node.get("name").unwrap().text(), Some("x"));
    assert_eq!(node.get("list").unwrap().items()[0].text(), Some("a"));
}

#[test]
fn duplicate_keys_name_both_places() {
    let (_, problems) = read("a: 1\nb: 2\na: 3\n");
    assert_eq!(problems, ["IL0105@10..11 the key `a` is written twice, first on line 1"]);
}

#[test]
fn a_yaml_bomb_is_refused_and_cheap() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text.extend([format!("a{level}: &a{level} [{aliases}]\n")]);
    }
    let (node, problems) = read(&text);
    assert!(node.is_none());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("IL0106"), "{problems:?}");
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["[".repeat(10_000), "- ".repeat(10_000), "{a: ".repeat(10_000)] {
        let (node, problems) = read(&text);
        assert!(node.is_none());
        assert!(
            problems[0].starts_with("IL0106") || problems[0].starts_with("IL0104"),
            "{problems:?}"
        );
    }
}

#[test]
fn aliases_are_expanded_and_keep_the_place_of_their_anchor() {
    let text = "a: &x {k: 1}\nb: *x\n";
    let node = tree(text);
    assert_eq!(node.get("b"), node.get("a"));
    let (_, problems) = read("a: &x [*x]\n");
    assert_eq!(problems, ["IL0107@7..9 the alias is part of what it names"]);
}

#[test]
fn what_files_may_not_use_is_said() {
    for (text, code) in [
        ("a: !!str 5\n", "IL0107"),
        ("a: !include b.yaml\n", "IL0107"),
        ("x: &x {a: 1}\nb:\n  <<: *x\n", "IL0107"),
        ("a: 1\n---\nb: 2\n", "IL0107"),
        ("? [a, b]\n: c\n", "IL0107"),
        ("a:\n\tb: 1\n", "IL0104"),
        ("a: b: c\n", "IL0104"),
        ("a: [1, 2\nb: 3\n", "IL0104"),
        ("a: \"x\nb: 1\n", "IL0104"),
        ("a: \0b\n", "IL0104"),
        ("a: @x\n", "IL0104"),
        ("a: *x\n", "IL0104"),
        ("", "IL0108"),
        ("# only a comment\n", "IL0108"),
    ] {
        let (_, problems) = read(text);
        assert_eq!(problems.len(), 1, "{text:?}: {problems:?}");
        assert!(problems[0].starts_with(code), "{text:?}: {problems:?}");
    }
}

#[test]
fn a_large_file_is_refused_before_it_is_parsed() {
    let (node, problems) = read(&"a".repeat(2 << 20));
    assert!(node.is_none());
    assert_eq!(problems, ["IL0103@0..0 the file has 2097152 bytes"]);
}

#[test]
fn a_syntax_error_never_shows_a_secret() {
    let mut problems = Problems::default();
    let text = "redis:\n  password: \"hunter2\n";
    assert!(parse(text, Origin::File, &mut problems).is_none());
    let file = problems.source("a.yaml".as_ref(), text);
    let rendered = problems.finish(&file, None).iter().map(ToString::to_string).collect::<String>();
    assert!(rendered.contains("IL0104"), "{rendered}");
    assert!(!rendered.contains("hunter2"), "{rendered}");
}
