//! Shapes as the reference page.

use std::fmt::Write;

use super::{Field, FileKind, MapShape, Shape, TYPE, Variant};
use crate::code::Code;

/// The reference page of all files and problems, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Reference\n\n\
         Every key of every file. Generated from `crates/interlock-config/src/shape`; regenerate with\n\
         `UPDATE_REFERENCE=1 cargo nextest run -p interlock-config reference`.\n",
    );
    for kind in FileKind::ALL {
        let mut seen = Vec::new();
        let title = match kind {
            FileKind::Config => "interlock.yaml",
            FileKind::Pipeline => "Pipeline files",
            FileKind::Archetype => "Archetype files",
            FileKind::Calendar => "Calendar files",
        };
        line(&mut page, &format!("\n## {title}\n"));
        table(&mut page, kind.shape(), "", &mut seen);
    }
    line(&mut page, "\n## Problems\n\n| code | severity | meaning |\n|---|---|---|");
    for code in Code::all() {
        let row =
            format!("| {} | {} | {} |", code.as_str(), code.severity().as_str(), code.meaning());
        line(&mut page, &row);
    }
    page
}

fn line(page: &mut String, text: &str) {
    // Writing to a string cannot fail.
    writeln!(page, "{text}").unwrap_or_default();
}

/// One table per map, maps inside it after it, each map once.
fn table(page: &mut String, map: &'static MapShape, path: &str, seen: &mut Vec<&'static MapShape>) {
    if seen.iter().any(|other| other.is_same(map)) {
        return;
    }
    seen.push(map);
    if !path.is_empty() {
        line(page, &format!("\n### `{path}`\n"));
    }
    header(page);
    for field in map.fields() {
        row(page, field);
    }
    for variant in map.variants {
        line(page, &format!("\nWith `{TYPE}: {}`:\n", variant.types.join(" | ")));
        if !variant.refused.is_empty() {
            line(page, &format!("Refused (IL0211). {}", variant.refused));
            continue;
        }
        if variant.open {
            line(page, "Any further keys, kept as they are written.");
        } else if variant.groups.is_empty() {
            line(page, "No further keys.");
        } else {
            header(page);
        }
        for field in variant.fields() {
            row(page, field);
        }
    }
    let inside = map.fields().chain(map.accepted_variants().flat_map(Variant::fields));
    for field in inside.filter(|field| field.is_accepted()) {
        let path =
            if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        for inner in field.shape.maps() {
            table(page, inner, &path, seen);
        }
    }
}

fn header(page: &mut String) {
    line(page, "| key | value | default | meaning | since |\n|---|---|---|---|---|");
}

fn row(page: &mut String, field: &Field) {
    let mut key = format!("`{}`", field.name);
    for alias in field.aliases {
        write!(key, ", `{alias}`").unwrap_or_default();
    }
    if !field.is_accepted() {
        line(
            page,
            &format!("| {key} | refused (IL0211) |  | {} | {} |", field.refused, field.since),
        );
        return;
    }
    let default = if field.required { "required" } else { field.default };
    let refused: Vec<_> = field.refused_words.iter().map(|(word, _)| format!("`{word}`")).collect();
    let doc = match refused.as_slice() {
        [] => field.doc.to_owned(),
        words => format!("{} Refused (IL0211): {}.", field.doc, words.join(", ")),
    };
    let cells = [&key, &words(field.shape), default, &doc, field.since];
    line(page, &format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
}

fn words(shape: &Shape) -> String {
    match shape {
        Shape::Text(format) | Shape::Scalar(format) => format.words().to_owned(),
        Shape::Int { min, max } => format!("{min} to {max}"),
        Shape::Number { min } => format!("number from {min}"),
        Shape::Bool => "`true` or `false`".to_owned(),
        Shape::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        Shape::List(item) => format!("list of {}", words(item)),
        Shape::Map(map) => format!("map ({})", map.name),
        Shape::Dict(value) => format!("map of {}", words(value)),
        Shape::Either(shapes) => shapes.iter().map(words).collect::<Vec<_>>().join("; or "),
        Shape::Json => "any value".to_owned(),
    }
}
