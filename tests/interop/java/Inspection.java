import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.MetadataTableType;
import org.apache.iceberg.MetadataTableUtils;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.puffin.BlobMetadata;
import org.apache.iceberg.puffin.Puffin;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;
import org.apache.iceberg.relocated.com.google.common.collect.Lists;
import org.apache.iceberg.types.Types;

/** Commands that read a table: its rows, and what Iceberg finds in its metadata. */
final class Inspection {
  private Inspection() {}

  /** The rows of the branch or snapshot, with `_row_id` and `_last_updated_sequence_number` at their end if asked. */
  static void read(JsonNode command, ObjectNode answer) throws IOException {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    Schema schema = table.schema();
    if (command.path("lineage").asBoolean()) {
      schema = MetadataColumns.schemaWithRowLineage(schema);
    }
    var builder = IcebergGenerics.read(table).project(schema);
    if (command.has("branch")) {
      builder.useSnapshot(table.snapshot(command.get("branch").asText()).snapshotId());
    } else if (command.has("snapshot")) {
      builder.useSnapshot(command.get("snapshot").asLong());
    }
    ArrayNode rows = answer.putArray("rows");
    try (CloseableIterable<Record> records = builder.build()) {
      for (Record record : records) {
        rows.add(Values.row(schema.asStruct(), record));
      }
    }
  }

  /**
   * For each filter, as ExpressionParser reads it, the data files that a scan opens, the rows that come back when
   * everything is pruned that the metrics and footers allow, and those of all rows that the filter is true of.
   */
  static void select(JsonNode command, ObjectNode answer) throws IOException {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    Types.StructType type = table.schema().asStruct();
    List<Record> rows;
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).build()) {
      rows = Lists.newArrayList(records);
    }
    ArrayNode answers = answer.putArray("filters");
    for (JsonNode json : command.get("filters")) {
      Expression filter = filter(json, table.schema());
      Evaluator evaluator = new Evaluator(type, filter);
      InternalRecordWrapper wrapper = new InternalRecordWrapper(type);
      ObjectNode found = answers.addObject();
      ArrayNode all = found.putArray("all");
      rows.stream().filter(row -> evaluator.eval(wrapper.wrap(row))).forEach(row -> all.add(Values.row(type, row)));
      ArrayNode pruned = found.putArray("pruned");
      try (CloseableIterable<Record> records = IcebergGenerics.read(table).where(filter).build()) {
        records.forEach(row -> pruned.add(Values.row(type, row)));
      }
      try (CloseableIterable<FileScanTask> tasks = table.newScan().filter(filter).planFiles()) {
        found.put("files", Iterables.size(tasks));
      }
    }
  }

  /** With "text" its value is cast to the column's type: Java takes JSON's nanoseconds for microseconds. */
  private static Expression filter(JsonNode json, Schema schema) {
    boolean text = json.path("text").asBoolean();
    return text ? ExpressionParser.fromJson(json.toString()) : ExpressionParser.fromJson(json.toString(), schema);
  }

  /** The manifests and manifest entries of the branch's snapshot, the deletes of each data file's scan, the summary. */
  static void inspect(JsonNode command, ObjectNode answer) throws IOException {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    Snapshot snapshot = table.snapshot(command.path("branch").asText("main"));
    answer.put("snapshot_id", snapshot.snapshotId()).put("sequence_number", snapshot.sequenceNumber());
    answer.put("operation", snapshot.operation());
    answer.putPOJO("summary", snapshot.summary());
    answer.set("entries", rows(table, snapshot, MetadataTableType.ENTRIES, "readable_metrics"));
    answer.set("manifests", manifests(table, snapshot));
    ObjectNode scan = answer.putObject("scan");
    try (CloseableIterable<FileScanTask> tasks = table.newScan().useSnapshot(snapshot.snapshotId()).planFiles()) {
      for (FileScanTask task : tasks) {
        ArrayNode deletes = scan.putArray(task.file().location());
        for (DeleteFile delete : task.deletes()) {
          deletes.add(delete.location() + "#" + delete.contentOffset());
        }
      }
    }
  }

  private static ArrayNode manifests(BaseTable table, Snapshot snapshot) {
    ArrayNode manifests = Values.JSON.createArrayNode();
    snapshot.allManifests(table.io()).forEach(manifest -> {
      ObjectNode node = manifests.addObject();
      node.put("path", manifest.path()).put("content", manifest.content().name());
      node.put("spec_id", manifest.partitionSpecId());
      node.put("sequence_number", manifest.sequenceNumber()).put("min_sequence_number", manifest.minSequenceNumber());
      node.put("added_files", manifest.addedFilesCount()).put("added_rows", manifest.addedRowsCount());
      node.put("existing_files", manifest.existingFilesCount()).put("existing_rows", manifest.existingRowsCount());
      node.put("deleted_files", manifest.deletedFilesCount()).put("deleted_rows", manifest.deletedRowsCount());
      node.put("first_row_id", manifest.firstRowId());
    });
    return manifests;
  }

  private static ArrayNode rows(BaseTable table, Snapshot snapshot, MetadataTableType type, String without)
      throws IOException {
    Table metadata = MetadataTableUtils.createMetadataTableInstance(table, type);
    var columns = metadata.schema().columns().stream().filter(field -> !field.name().equals(without)).toList();
    TableScan scan = metadata.newScan().useSnapshot(snapshot.snapshotId()).project(new Schema(columns));
    ArrayNode rows = Values.JSON.createArrayNode();
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        try (CloseableIterable<StructLike> structs = task.asDataTask().rows()) {
          structs.forEach(struct -> rows.add(Values.named(scan.schema().asStruct(), struct)));
        }
      }
    }
    return rows;
  }

  /** The blobs that the footer of a Puffin file lists. */
  static void puffin(JsonNode command, ObjectNode answer) throws IOException {
    ArrayNode blobs = answer.putArray("blobs");
    var file = PointerOperations.fileIO().newInputFile(command.get("path").asText());
    try (var reader = Puffin.read(file).build()) {
      for (BlobMetadata blob : reader.fileMetadata().blobs()) {
        ObjectNode node = blobs.addObject().put("type", blob.type()).put("codec", blob.compressionCodec());
        node.put("snapshot_id", blob.snapshotId()).put("sequence_number", blob.sequenceNumber());
        node.put("offset", blob.offset()).put("length", blob.length());
        node.putPOJO("fields", blob.inputFields()).putPOJO("properties", blob.properties());
      }
    }
  }
}
