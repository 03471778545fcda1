//! The OpenAPI document: what the routes say of themselves, with the scope, the headers and the errors that all of them have.

use interlock_answers::ProblemAnswer;
use utoipa::{
    OpenApi as _,
    openapi::{
        ContentBuilder, InfoBuilder, ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
        ResponseBuilder, Type,
        extensions::ExtensionsBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use crate::{access::Need, error::PROBLEM_JSON};

/// Which scope an operation needs, for the test over all of them and for people who make tokens.
const SCOPE: &str = "x-interlock-scope";
/// What it says of an operation for which no token is asked.
const OPEN: &str = "none";
/// What it says of an operation that no token opens.
const SIGNED: &str = "none: a signature of another instance";
/// How a token is shown.
const BEARER: &str = "token";

/// What no route says of itself.
#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(ProblemAnswer)))]
struct CommonParts;

/// The document before any route is in it.
pub(crate) fn empty() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Interlock")
        .version("1")
        .description(Some(
            "What ran, what did not, why, and what comes next. Times are UTC, absent values are null, fields are only ever added.",
        ))
        .build();
    let mut document = OpenApiBuilder::new().info(info).build();
    document.merge(CommonParts::openapi());
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = document.components.get_or_insert_default();
    components.security_schemes.insert(BEARER.to_owned(), scheme.into());
    document
}

/// Says of every operation which scope it needs.
pub(crate) fn require(document: &mut OpenApi, need: Need) {
    for item in document.paths.paths.values_mut() {
        for (_, operation) in operations(item) {
            let scope = ExtensionsBuilder::new().add(SCOPE, need.least()).build();
            operation.extensions.get_or_insert_default().merge(scope);
            operation.security = Some(vec![SecurityRequirement::new(BEARER, Vec::<String>::new())]);
        }
    }
}

/// Says of every operation that another instance signs it.
pub(crate) fn require_signature(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for (_, operation) in operations(item) {
            let scope = ExtensionsBuilder::new().add(SCOPE, SIGNED).build();
            operation.extensions.get_or_insert_default().merge(scope);
        }
    }
}

/// Adds what all operations have in common.
pub(crate) fn finish(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let is_shared = operations(item).count() > 1;
        for (method, operation) in operations(item) {
            finish_operation(operation);
            let changes = !path.ends_with("/plan") && !path.ends_with("/evaluate");
            if method != "get" && path.starts_with("/api/v1/") && changes {
                operation.parameters.get_or_insert_default().extend(headers());
            }
            // One function for several methods gives all of them its name, and those must differ.
            if let Some(id) = operation.operation_id.as_mut().filter(|_| is_shared) {
                let ending = format!("_{method}");
                if method != "get" && !id.ends_with(&ending) {
                    id.push_str(&ending);
                }
            }
        }
    }
}

fn finish_operation(operation: &mut Operation) {
    let extensions = operation.extensions.get_or_insert_default();
    if !extensions.contains_key(SCOPE) {
        extensions.merge(ExtensionsBuilder::new().add(SCOPE, OPEN).build());
    }
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let error =
        ResponseBuilder::new().description("An error.").content(PROBLEM_JSON, problem).build();
    operation.responses.responses.insert("default".to_owned(), error.into());
}

/// What every request to change something may say in its head.
fn headers() -> [RefOr<Parameter>; 3] {
    [
        ("Idempotency-Key", "The same request under the same key is done once, and gets the same answer for eight days."),
        ("Prefer", "`wait=SECONDS`: for how long to wait until it is applied, at most 10."),
        ("Interlock-Client", "`cli` or `ui` when a person asks; absent when a program does."),
    ]
    .map(|(name, description)| {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .description(Some(description))
            .schema(Some(text))
            .build()
            .into()
    })
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let all = [("get", get), ("put", put), ("post", post), ("delete", delete), ("patch", patch)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
