import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.iceberg.SingleValueParser;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.iceberg.util.DateTimeUtil;

/**
 * Rows and values as JSON, exactly: primitives as in the table spec's single-value serialization, a row or
 * struct as the array of its fields, a list as an array, a map as an array of pairs. Floats that JSON has no
 * number for, and negative zero, are strings.
 */
final class Values {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

  private Values() {}

  /** What Iceberg's generic writers take for a value of this type. */
  static Object decode(Type type, JsonNode node) {
    if (node == null || node.isNull()) {
      return null;
    }
    return switch (type.typeId()) {
      case STRUCT -> record(type.asStructType(), node);
      case LIST -> {
        var list = new ArrayList<>();
        node.forEach(element -> list.add(decode(type.asListType().elementType(), element)));
        yield list;
      }
      case MAP -> {
        var map = new LinkedHashMap<>();
        Types.MapType pairs = type.asMapType();
        node.forEach(pair -> map.put(decode(pairs.keyType(), pair.get(0)), decode(pairs.valueType(), pair.get(1))));
        yield map;
      }
      default -> external(type, internal(type, node));
    };
  }

  /** A primitive in Iceberg's internal representation, as partition tuples hold it. */
  static Object internal(Type type, JsonNode node) {
    if (node == null || node.isNull()) {
      return null;
    }
    return switch (type.typeId()) {
      case FLOAT -> Float.valueOf(node.asText());
      case DOUBLE -> Double.valueOf(node.asText());
      default -> SingleValueParser.fromJson(type, node);
    };
  }

  static GenericRecord record(Types.StructType type, JsonNode row) {
    if (row.size() != type.fields().size()) {
      throw new IllegalArgumentException("Row " + row + " does not fit " + type);
    }
    GenericRecord record = GenericRecord.create(type);
    for (int i = 0; i < row.size(); i++) {
      record.set(i, decode(type.fields().get(i).type(), row.get(i)));
    }
    return record;
  }

  /** The value, in Iceberg's generic or internal representation, as JSON. */
  static JsonNode encode(Type type, Object value) {
    if (value == null) {
      return NODES.nullNode();
    }
    return switch (type.typeId()) {
      case STRUCT -> row(type.asStructType(), (StructLike) value);
      case LIST -> {
        ArrayNode list = NODES.arrayNode();
        ((Iterable<?>) value).forEach(element -> list.add(encode(type.asListType().elementType(), element)));
        yield list;
      }
      case MAP -> {
        ArrayNode map = NODES.arrayNode();
        Types.MapType pairs = type.asMapType();
        ((Map<?, ?>) value)
            .forEach((k, v) -> map.addArray().add(encode(pairs.keyType(), k)).add(encode(pairs.valueType(), v)));
        yield map;
      }
      case FLOAT -> floating(((Float) value).doubleValue(), NODES.numberNode((Float) value));
      case DOUBLE -> floating((Double) value, NODES.numberNode((Double) value));
      default -> parse(SingleValueParser.toJson(type, internal(type, value)));
    };
  }

  static ArrayNode row(Types.StructType type, StructLike row) {
    ArrayNode array = NODES.arrayNode();
    for (int i = 0; i < type.fields().size(); i++) {
      array.add(encode(type.fields().get(i).type(), row.get(i, Object.class)));
    }
    return array;
  }

  /** A metadata row with its fields named, those of nested structs too. */
  static JsonNode named(Type type, Object value) {
    if (value == null || !type.isStructType()) {
      return encode(type, value);
    }
    ObjectNode object = NODES.objectNode();
    int i = 0;
    for (Types.NestedField field : type.asStructType().fields()) {
      object.set(field.name(), named(field.type(), ((StructLike) value).get(i++, Object.class)));
    }
    return object;
  }

  private static JsonNode parse(String json) {
    try {
      return JSON.readTree(json);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static JsonNode floating(double value, JsonNode number) {
    boolean negativeZero = value == 0 && Double.doubleToRawLongBits(value) != 0;
    return Double.isFinite(value) && !negativeZero ? number : NODES.textNode(Double.toString(value));
  }

  private static Object external(Type type, Object value) {
    return switch (type.typeId()) {
      case DATE -> DateTimeUtil.dateFromDays((Integer) value);
      case TIME -> DateTimeUtil.timeFromMicros((Long) value);
      case TIMESTAMP -> ((Types.TimestampType) type).shouldAdjustToUTC()
          ? DateTimeUtil.timestamptzFromMicros((Long) value)
          : DateTimeUtil.timestampFromMicros((Long) value);
      case TIMESTAMP_NANO -> ((Types.TimestampNanoType) type).shouldAdjustToUTC()
          ? DateTimeUtil.timestamptzFromNanos((Long) value)
          : DateTimeUtil.timestampFromNanos((Long) value);
      case FIXED -> ByteBuffers.toByteArray((ByteBuffer) value);
      default -> value;
    };
  }

  private static Object internal(Type type, Object value) {
    boolean nanos = type.typeId() == Type.TypeID.TIMESTAMP_NANO;
    if (value instanceof LocalDate date) {
      return DateTimeUtil.daysFromDate(date);
    } else if (value instanceof LocalTime time) {
      return DateTimeUtil.microsFromTime(time);
    } else if (value instanceof LocalDateTime time) {
      return nanos ? DateTimeUtil.nanosFromTimestamp(time) : DateTimeUtil.microsFromTimestamp(time);
    } else if (value instanceof OffsetDateTime time) {
      return nanos ? DateTimeUtil.nanosFromTimestamptz(time) : DateTimeUtil.microsFromTimestamptz(time);
    } else if (value instanceof byte[] bytes) {
      return ByteBuffer.wrap(bytes);
    }
    return value;
  }
}
