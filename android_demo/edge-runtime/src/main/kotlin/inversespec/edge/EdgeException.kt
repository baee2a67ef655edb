package inversespec.edge

/**
 * Every way the edge can fail, by name; the names are those of the Python runtime, with Exception for Error.
 *
 * Each message says what was expected, what was found, where, and what to do: it may be shown to a person.
 */
sealed class EdgeException(message: String, cause: Throwable? = null) : Exception(message, cause)

/** What was asked for does not make sense: an option, a missing prompt, an answer too long. */
open class UsageException(message: String) : EdgeException(message)

/** The prompt, the anchors or the tokens asked for do not fit the model's context. */
class ContextException(message: String) : UsageException(message)

/** The model could not be loaded or run. */
class EngineException(message: String, cause: Throwable? = null) : EdgeException(message, cause)

/** A model bundle cannot be used. */
sealed class BundleException(message: String, cause: Throwable? = null) : EdgeException(message, cause)

/** There is no bundle at the given place. */
class BundleMissingException(message: String) : BundleException(message)

/** A file that the bundle lists is missing, unreadable or of another size; or an archive is broken. */
class BundleFileException(message: String, cause: Throwable? = null) : BundleException(message, cause)

/** A file does not have the SHA-256 that is stated for it. */
class BundleHashException(message: String) : BundleException(message)

/** `bundle.json`, the tokenizer or the chat template is of an unknown or a broken form. */
class BundleSchemaException(message: String, cause: Throwable? = null) : BundleException(message, cause)

/** The bundle has no such variant. */
class BundleVariantException(message: String) : BundleException(message)

/** A payload, or the anchors in it, cannot be used. */
sealed class PayloadException(message: String) : EdgeException(message)

/** The bytes end before the payload does. */
class TruncatedPayloadException(message: String) : PayloadException(message)

/** The payload, or what it claims to unpack to, is larger than a payload may be. */
class OversizedPayloadException(message: String) : PayloadException(message)

/** The bytes were changed on their way. */
class ChecksumException(message: String) : PayloadException(message)

/** The payload is written in a version of the format that this reader does not know. */
class VersionException(message: String) : PayloadException(message)

/** The payload names a codec that this reader does not know, or is without: ask for codec compact. */
class CodecException(message: String) : PayloadException(message)

/** The checksum holds but the content breaks a rule of the format. */
class MalformedPayloadException(message: String) : PayloadException(message)

/** The payload was made for another vocabulary, special ids or chat template. */
class ContractMismatchException(message: String) : PayloadException(message)

/** A position lies outside the canvas, or a token id outside the vocabulary. */
class AnchorRangeException(message: String) : PayloadException(message)

/** The payload neither carries its prompt nor was the prompt given beside it. */
class PromptRequiredException(message: String) : PayloadException(message)

/** The payload adds to another one, and that one was not given or is not the one it names. */
class BasePayloadException(message: String) : PayloadException(message)

/** The payload is of a codec that needs the tokenizer, and none was given. */
class TokenizerRequiredException(message: String) : PayloadException(message)
