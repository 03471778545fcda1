//! Shapes as JSON Schema (draft 2020-12), for editors.

use serde_json::{Map, Value, json};

use super::{Field, FileKind, MapShape, Shape, TYPE, Variant};

/// The JSON Schema of a kind of file.
pub fn json_schema(kind: FileKind) -> Value {
    let mut schema = of_map(kind.shape());
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        object.insert("title".into(), json!(format!("Interlock {}", kind.as_str())));
    }
    schema
}

fn of_map(shape: &MapShape) -> Value {
    if shape.variants.is_empty() {
        return object(&shape.fields().collect::<Vec<_>>(), shape.any_of, None);
    }
    let variants: Vec<_> = shape
        .accepted_variants()
        .map(|variant| {
            let fields: Vec<_> = shape.fields().chain(variant.fields()).collect();
            object(&fields, variant.any_of, Some(variant))
        })
        .collect();
    json!({ "oneOf": variants })
}

fn object(fields: &[&Field], any_of: &[&str], variant: Option<&Variant>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some(variant) = variant {
        properties.insert(TYPE.into(), json!({ "enum": variant.types }));
        required.push(TYPE);
    }
    for field in fields.iter().filter(|field| field.is_accepted()) {
        for name in std::iter::once(&field.name).chain(field.aliases) {
            properties.insert((*name).into(), of_field(field));
        }
        if field.required {
            required.push(field.name);
        }
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": variant.is_some_and(|variant| variant.open),
    });
    if let Some(object) = schema.as_object_mut() {
        if !required.is_empty() {
            object.insert("required".into(), json!(required));
        }
        if !any_of.is_empty() {
            object.insert("anyOf".into(), json!(spellings(fields, any_of)));
        }
    }
    schema
}

/// One `required` per spelling of each of some keys.
fn spellings(fields: &[&Field], any_of: &[&str]) -> Vec<Value> {
    fields
        .iter()
        .filter(|field| any_of.contains(&field.name))
        .flat_map(|field| std::iter::once(&field.name).chain(field.aliases))
        .map(|name| json!({ "required": [name] }))
        .collect()
}

fn of_field(field: &Field) -> Value {
    let schema = of(field.shape);
    // An empty section means an absent one.
    let mut schema = if field.shape.is_container() && !field.required {
        json!({ "anyOf": [schema, { "type": "null" }] })
    } else {
        schema
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".into(), json!(describe(field)));
    }
    schema
}

fn describe(field: &Field) -> String {
    if field.default.is_empty() {
        field.doc.to_owned()
    } else {
        format!("{} Default: {}.", field.doc, field.default)
    }
}

fn of(shape: &Shape) -> Value {
    match shape {
        Shape::Text(format) if format.pattern().is_empty() => json!({ "type": "string" }),
        Shape::Text(format) => json!({ "type": "string", "pattern": format.pattern() }),
        Shape::Scalar(_) => json!({ "type": ["string", "number", "boolean"] }),
        Shape::Int { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Number { min } => json!({ "type": "number", "minimum": min }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Choice(words) => json!({ "enum": words }),
        Shape::List(item) => json!({ "type": "array", "items": of(item) }),
        Shape::Map(map) => of_map(map),
        // A user's key without anything under it is an empty map.
        Shape::Dict(value) if value.is_container() => {
            json!({ "type": "object", "additionalProperties": { "anyOf": [of(value), { "type": "null" }] } })
        }
        Shape::Dict(value) => json!({ "type": "object", "additionalProperties": of(value) }),
        Shape::Either(shapes) => {
            json!({ "anyOf": shapes.iter().map(of).collect::<Vec<_>>() })
        }
        Shape::Json => json!({}),
    }
}
